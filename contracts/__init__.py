"""Floor 0, what the chain enforces; imports nothing of ours.

    Credits ──▶ Registry (stake, allotments, seats) ◀──┐
                   ▲                                   │ hold, slash
    Pools (terms, funds) ◀── Ledger (log heads, beacons, versions, earnings) ◀── Court (cases)

In: Solidity (*.sol). Out: `artifacts/*.json`, committed, read by `artifacts.py` and put on a chain by
`deployment.py`. Compile: `npm ci && npm run compile` in this folder; running proofpool needs no Node.js.
"""
