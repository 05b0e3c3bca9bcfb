"""Merkle trees: `history` (the append-only log), `standard` (earnings), `commitment` (hidden verdicts)."""
