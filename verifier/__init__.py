"""The verifier: from a drawn submission to a signed verdict, and to the Court where it was forged.

    chain, log ─▶ draws ─▶ case ─▶ pipeline(checks) ─▶ judge ─▶ verdicts ─▶ commitments ─▶ reveal
                                                                    └▶ accuse ─▶ enforce
    log ─▶ attest                                                     (earnings, recomputed)

A verdict comes from the uploaded bytes, the chain and the pool's rules alone. Run it with
`proofpool verifier run --config FILE` (or `python -m verifier run --config FILE`).
"""
