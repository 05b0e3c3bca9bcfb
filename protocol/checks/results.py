"""How a check says what it found: passed, refused, or measured against a limit.

In: a check's name, a reason, numbers. Out: `CheckResult`, whose numbers have a canonical JSON form.
"""

from __future__ import annotations

import math

from protocol.errors import ProofpoolError
from protocol.reasons import Cost, Outcome, RejectReason
from protocol.rules import Limit
from protocol.wire import CheckResult

NUM_DECIMALS = 4
"""Evidence is canonical JSON: numbers nearer to zero than 1e-4 are spelled differently by different languages."""

MAX_DETAIL_CHARACTERS = 240


def passed(check: str, *, value: float | None = None, num_audited: int = 0, detail: str = "") -> CheckResult:
    """Nothing wrong; `value` is a statistic that is reported only."""
    return CheckResult(
        check=check, outcome=Outcome.ACCEPT, value=_rounded(value), num_audited=num_audited, detail=_cut(detail)
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
    check: str, reason: RejectReason, value: float, limit: Limit, *, num_audited: int, detail: str = ""
) -> CheckResult:
    """A statistic against its limits: dropped beyond `reject`, slashed beyond `slash` where the reason can."""
    outcome = Outcome.ACCEPT
    if value > limit.slash and reason.cost is Cost.SLASH:
        outcome = Outcome.SLASH
    elif value > limit.reject:
        outcome = Outcome.DROP
    return CheckResult(
        check=check,
        outcome=outcome,
        reason=None if outcome is Outcome.ACCEPT else reason.value,
        value=_rounded(value),
        reject_threshold=limit.reject,
        slash_threshold=limit.slash,
        num_audited=num_audited,
        detail=_cut(detail),
    )


def _rounded(value: float | None) -> float | None:
    if value is None:
        return None
    if not math.isfinite(value):
        raise ProofpoolError("a check computed no number", f"{value}", "a fault of this verifier: no verdict follows")
    return round(value, NUM_DECIMALS)


def _cut(detail: str) -> str:
    return detail if len(detail) <= MAX_DETAIL_CHARACTERS else detail[: MAX_DETAIL_CHARACTERS - 1] + "…"
