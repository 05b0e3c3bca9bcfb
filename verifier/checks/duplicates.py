"""The same completions twice from one node, within what this verifier has seen.

In: the hash over all completions. Out: passed, or `duplicate` (not paid). Overlap between nodes isn't looked
at here: seeds already catch real copies, and short answers coincide.
"""

from __future__ import annotations

from protocol.reasons import RejectReason
from protocol.wire import CheckResult
from verifier.case import Case
from verifier.results import passed, refused

NAME = "duplicates"


def check(case: Case) -> CheckResult:
    twin = case.instruments.find_twin(case.claim.node, case.completions_hash, case.dossier.submission_id)
    if twin is not None:
        return refused(NAME, RejectReason.DUPLICATE, f"submission {twin} has the same completions")
    return passed(NAME, num_audited=len(case.rollouts))
