"""The auditor's commands: prove what happened, from what is signed, logged and on chain, and say how fresh that is.

    log/       leaves and heads, read and hashed again, held against the chain ──┬─▶ what every room below stands on
    bundle/    one submission, from its bytes to its payment or slash  ─▶ verify ┤
    replay/    its verdicts, run again with the pinned weights         ─▶ replay ┤
    watch/     the log, remembered and looked at again                 ─▶ watch, checkpoint
    reports/   what the log adds up to              ─▶ show, export, money, verifiers
    fairness/  leased against delivered             ─▶ fairness
    court/     what an auditor does about it        ─▶ challenge, dispute, take over, claim

`step.py` has the answers of all of them (✓, ✗, open) and `report.py` prints them; `commands.py` is the command line,
and each room's commands stand beside what they run. Rooms know those above them, and `step.py`; none knows the court.
"""
