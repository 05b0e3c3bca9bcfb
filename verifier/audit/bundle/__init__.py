"""One submission, checked from its file's bytes to its payment or slash: `proofpool audit verify`.

evidence ─▶ ground ─▶ verify ─┬─▶ content    digest, lease, signature, receipt
                              ├─▶ verdicts   who judged, drawn and committed first; reaudit
                              ├─▶ payment    price, earnings root, case
                              └─▶ history    the leaves, their heads, the chain
"""
