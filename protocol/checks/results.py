"""How a check says what it found: passed, refused, measured against a limit, or counted against an honest rate.

In: a check's name, a reason, numbers. Out: `CheckResult` with the numbers as they are; `as_evidence` gives them the
canonical form that is hashed.
"""

from __future__ import annotations

import math

from protocol.errors import ProofpoolError
from protocol.reasons import Cost, Outcome, RejectReason
from protocol.rules import FlipTest, Limit
from protocol.statistics import binomial_tail, least_count
from protocol.wire import CheckResult

NUM_DECIMALS = 4
"""Evidence is canonical JSON: numbers nearer to zero than 1e-4 are spelled differently by different languages."""

MAX_DETAIL_CHARACTERS = 240


def passed(check: str, *, value: float | None = None, num_audited: int = 0, detail: str = "") -> CheckResult:
    """Nothing wrong; `value` is a statistic that is reported only."""
    return CheckResult(
        check=check, outcome=Outcome.ACCEPT, value=_finite(value), num_audited=num_audited, detail=_cut(detail)
    )


def refused(
    check: str, reason: RejectReason, detail: str, *, num_audited: int = 0, outcome: Outcome | None = None
) -> CheckResult:
    """Something is wrong beyond doubt; it costs what the reason costs, unless `outcome` says otherwise."""
    costs = Outcome.SLASH if reason.cost is Cost.SLASH else Outcome.DROP
    return CheckResult(
        check=check,
        outcome=costs if outcome is None else outcome,
        reason=reason.value,
        num_audited=num_audited,
        detail=_cut(detail),
    )


def measured(
    check: str,
    reason: RejectReason,
    value: float,
    limit: Limit,
    *,
    num_audited: int,
    num_observations: int = 1,
    detail: str = "",
) -> CheckResult:
    """A statistic over so many observations against its limits for as many (`Limit.at`).

    Dropped beyond `reject`, slashed beyond `slash` where there is such a limit and the reason can.
    """
    here = limit.at(num_observations)
    outcome = Outcome.ACCEPT
    if here.slash is not None and value > here.slash and reason.cost is Cost.SLASH:
        outcome = Outcome.SLASH
    elif value > here.reject:
        outcome = Outcome.DROP
    return CheckResult(
        check=check,
        outcome=outcome,
        reason=None if outcome is Outcome.ACCEPT else reason.value,
        value=_finite(value),
        reject_threshold=here.reject,
        slash_threshold=here.slash,
        num_audited=num_audited,
        detail=_cut(detail),
    )


def counted(check: str, reason: RejectReason, count: int, num_trials: int, test: FlipTest, detail: str) -> CheckResult:
    """A count against what an honest rate gives; the thresholds are the least counts that are refused and punished."""
    tail = binomial_tail(num_trials, test.rate, count)
    outcome = Outcome.ACCEPT
    if tail < test.slash and reason.cost is Cost.SLASH:
        outcome = Outcome.SLASH
    elif tail < test.reject:
        outcome = Outcome.DROP
    return CheckResult(
        check=check,
        outcome=outcome,
        reason=None if outcome is Outcome.ACCEPT else reason.value,
        value=count,
        reject_threshold=least_count(num_trials, test.rate, test.reject),
        slash_threshold=least_count(num_trials, test.rate, test.slash),
        num_audited=num_trials,
        detail=_cut(detail),
    )


def as_evidence(result: CheckResult) -> CheckResult:
    """The same with numbers that have a canonical form, rounded to `NUM_DECIMALS`."""
    names = ("value", "reject_threshold", "slash_threshold")
    return result.model_copy(update={name: _rounded(getattr(result, name)) for name in names})


def _finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise ProofpoolError("a check computed no number", f"{value}", "a fault of this verifier: no verdict follows")
    return value


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, NUM_DECIMALS)


def _cut(detail: str) -> str:
    return detail if len(detail) <= MAX_DETAIL_CHARACTERS else detail[: MAX_DETAIL_CHARACTERS - 1] + "…"
