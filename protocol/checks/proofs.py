"""Whether the proofs have the one form that TOPLOC proofs have; what they prove is `checks/toploc.py`'s business.

In: proof bytes and the model's hidden size. Out: passed, or `proof_malformed` (slashable: no honest prover writes a
short, null or non-canonical proof, or a modulus that such states can't have).
"""

from __future__ import annotations

from protocol.checks.case import Case
from protocol.checks.results import passed, refused
from protocol.errors import MalformedProof
from protocol.reasons import RejectReason
from protocol.toploc.encoding import parse_proofs
from protocol.wire import CheckResult

NAME = "proofs"


def check(case: Case) -> CheckResult:
    shape, hidden_size = case.rules.toploc, case.terms.model_config.hidden_size
    for index, rollout in enumerate(case.rollouts):
        try:
            parse_proofs(
                rollout.proofs,
                rollout.num_units,
                chunk_rows=shape.chunk_rows,
                topk=shape.topk,
                hidden_size=hidden_size,
            )
        except MalformedProof as error:
            return refused(NAME, RejectReason.PROOF_MALFORMED, f"rollout {index}: {error.what}: {error.why}")
    return passed(NAME, num_audited=len(case.rollouts))
