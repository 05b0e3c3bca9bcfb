"""Whether the proofs are of this model's hidden states (TOPLOC, arXiv:2501.16007; `protocol/toploc/strict.py`).

In: measurements. Out: two statistics pooled over the submission, each against its limit: the share of compared
values whose sign or exponent differs, and the mean difference of 7-bit mantissas over the others. `check_content`
refuses proofs that say nothing, constant ones above all, whatever the statistics let pass.
"""

from __future__ import annotations

from protocol.checks.case import Case
from protocol.checks.measurements import measurements_of
from protocol.checks.results import measured, passed, refused
from protocol.reasons import RejectReason
from protocol.wire import CheckResult

CONTENT_NAME = "toploc_content"
EXPONENT_NAME = "toploc_exponents"
MANTISSA_NAME = "toploc_mantissas"


def check_content(case: Case) -> CheckResult:
    proofs = measurements_of(case).proofs
    if proofs.num_degenerate:
        detail = f"{proofs.num_degenerate} of {proofs.num_chunks} proofs hardly depend on the states"
        return refused(CONTENT_NAME, RejectReason.TOPLOC_MISMATCH, detail)
    return passed(CONTENT_NAME, num_audited=proofs.num_chunks)


def check_exponents(case: Case) -> CheckResult:
    proofs = measurements_of(case).proofs
    return measured(
        EXPONENT_NAME,
        RejectReason.TOPLOC_MISMATCH,
        proofs.mismatch_share,
        case.rules.thresholds.toploc_exp_mismatch_share,
        num_audited=proofs.num_values,
        detail=f"{proofs.num_mismatches} of {proofs.num_values} values",
    )


def check_mantissas(case: Case) -> CheckResult:
    proofs = measurements_of(case).proofs
    return measured(
        MANTISSA_NAME,
        RejectReason.TOPLOC_MISMATCH,
        proofs.mantissa_mean,
        case.rules.thresholds.toploc_mantissa_mean,
        num_audited=proofs.num_values - proofs.num_mismatches,
    )
