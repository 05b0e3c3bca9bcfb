"""Verdicts run again on this machine, with the weights that are pinned on chain: `proofpool audit replay`.

pinned ─▶ replay (twins) ─▶ comparison ─▶ lines
"""
