"""Whether a rollout file holds: what a worker asks of its own work, and a verifier of a stranger's.

    file ─▶ open_case ─▶ Case ─▶ bounds, prompts, proofs, termination, rewards       cheap: bytes alone
                           └──▶ prefill ─▶ Measurements ─▶ toploc, sampling, logprobs, termination
                                                           └▶ CheckResult, each with value and limit

`stages.py` runs them in this order. Nothing here needs a chain, a signature or a coordinator: who signed, when and
for which lease is the verifier's business (`verifier/checks/envelope.py`).
"""
