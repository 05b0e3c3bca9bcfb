"""Whether the proofs are of this model's hidden states (TOPLOC, arXiv:2501.16007; `protocol/toploc/strict.py`).

In: measurements. Out: two statistics pooled over the audited rollouts, each against its limit: the share of compared
values whose sign or exponent differs, and the mean difference of 7-bit mantissas over the others; and both again of
the rollout that stands out most. `check_content` refuses proofs that say nothing, constant ones above all, whatever
the statistics let pass.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.checks.case import Case
from protocol.checks.measurements import measurements_of
from protocol.checks.results import measured, passed, refused
from protocol.reasons import RejectReason
from protocol.rules import Limit, Rules
from protocol.toploc.pooled import ProofErrors
from protocol.wire import CheckResult

CONTENT_NAME = "toploc_content"
EXPONENT_NAME = "toploc_exponents"
MANTISSA_NAME = "toploc_mantissas"
WORST_EXPONENT_NAME = "toploc_exponents_worst"
WORST_MANTISSA_NAME = "toploc_mantissas_worst"

Statistic = Callable[[ProofErrors], float]


def check_content(case: Case) -> CheckResult:
    proofs = measurements_of(case).proofs
    if proofs.num_degenerate:
        detail = f"{proofs.num_degenerate} of {proofs.num_chunks} proofs hardly depend on the states"
        return refused(CONTENT_NAME, RejectReason.TOPLOC_MISMATCH, detail)
    return passed(CONTENT_NAME, num_audited=proofs.num_chunks)


def check_exponents(case: Case) -> CheckResult:
    proofs, limit = measurements_of(case).proofs, _with_shared_states(case.rules)
    counted = f"{proofs.num_mismatches} of {proofs.num_values} values"
    return _held(EXPONENT_NAME, proofs, proofs.mismatch_share, limit, num_audited=proofs.num_values, detail=counted)


def check_mantissas(case: Case) -> CheckResult:
    proofs, limit = measurements_of(case).proofs, case.rules.thresholds.toploc_mantissa_mean
    num_compared = proofs.num_values - proofs.num_mismatches
    return _held(MANTISSA_NAME, proofs, proofs.mantissa_mean, limit, num_audited=num_compared)


def check_worst_exponents(case: Case) -> CheckResult:
    limit = case.rules.thresholds.toploc_exp_mismatch_share
    return _worst(case, WORST_EXPONENT_NAME, lambda errors: errors.mismatch_share, limit)


def check_worst_mantissas(case: Case) -> CheckResult:
    limit = case.rules.thresholds.toploc_mantissa_mean
    return _worst(case, WORST_MANTISSA_NAME, lambda errors: errors.mantissa_mean, limit)


def _with_shared_states(rules: Rules) -> Limit:
    """The limit of exponents for a file, with room for one value that a group's rollouts have in common.

    Row 0 is their prompt's last state. Where honest rounding moves a value of it across a power of two, every rollout
    of the group shows the same mismatch: one observation that counts `group_size` times.
    """
    limit = rules.thresholds.toploc_exp_mismatch_share
    shared = rules.group_size / rules.toploc.topk
    return limit.model_copy(update={"burst": max(limit.burst, shared)}) if limit.gives_room else limit


def _worst(case: Case, name: str, statistic: Statistic, limit: Limit) -> CheckResult:
    """The rollout that is farthest up to its limit. A limit that gives no room says nothing of so few chunks."""
    errors = measurements_of(case).proofs_by_rollout
    number = max(errors, key=lambda n: statistic(errors[n]) - limit.at(errors[n].num_chunks).reject)
    worst, where = errors[number], f"rollout {number}"
    if not limit.gives_room:
        return passed(name, value=statistic(worst), num_audited=worst.num_values, detail=where)
    return _held(name, worst, statistic(worst), limit, num_audited=worst.num_values, detail=where)


def _held(
    name: str, errors: ProofErrors, value: float, limit: Limit, *, num_audited: int, detail: str = ""
) -> CheckResult:
    """A statistic of these proofs against its limit for as many chunks."""
    return measured(
        name,
        RejectReason.TOPLOC_MISMATCH,
        value,
        limit,
        num_audited=num_audited,
        num_observations=errors.num_chunks,
        detail=detail,
    )
