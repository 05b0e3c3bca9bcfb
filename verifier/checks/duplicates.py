"""The same completions twice from one node, within what this verifier has seen.

In: the hash over all completions. Out: passed, or `duplicate` (not paid). Overlap between nodes isn't looked
at here: seeds already catch real copies, and short answers coincide.
"""

from __future__ import annotations

from protocol.checks.case import Case
from protocol.checks.results import passed, refused
from protocol.reasons import RejectReason
from protocol.wire import CheckResult
from verifier.case import Dossier, FindTwin

NAME = "duplicates"


def check(dossier: Dossier, find_twin: FindTwin, case: Case) -> CheckResult:
    twin = find_twin(dossier.claim.node, case.completions_hash, dossier.submission_id)
    if twin is not None:
        return refused(NAME, RejectReason.DUPLICATE, f"submission {twin} has the same completions")
    return passed(NAME, num_audited=len(case.rollouts))
