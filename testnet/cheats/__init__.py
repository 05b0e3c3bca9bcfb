"""Workers that cheat, one kind a file, so that a run can show each being caught.

Each subclasses the product's worker and replaces one stage; none checks its own work. Run:
`python -m testnet.cheats wrong-model --config worker.toml`.
"""
