"""An auditor who remembers a log and looks again: `proofpool audit watch` and `proofpool audit checkpoint`.

checkpoint ─▶ watch ─┬─▶ alerts    what he wants to be told
                     └─▶ samples   what he judges again himself
"""
