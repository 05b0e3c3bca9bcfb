"""A verdict beside what the same checks say on this machine: does it agree, and how far are its numbers from ours?

In: a revealed verdict, and an `Examination` of the same rollouts here. Out: `ReplayedVerdict`. Numbers differ a little
between machines, since float32 kernels do; so a verdict agrees by outcome and reason, and its numbers are only called
off where no kernel makes such a difference. What follows exactly from file and rules (units, rollouts, the seed, which
checks there are) has to be exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.checks.report import COUNTED, CheckReport
from protocol.checks.results import as_evidence
from protocol.checks.sampling import FREEDOM_NAME
from protocol.checks.stages import Examination, worst
from protocol.reasons import Outcome, RejectReason
from protocol.wire import Address, CheckResult, UInt32
from verifier.stamps import OF_MEMORY, Revealed, Stamp, reviews_of

OF_RECORD = RejectReason.RULES_CHANGED
"""Rests on what the pool's record named then, which no bundle has."""

FAR_SHARE = 0.25
"""Of the limit: a value that is further from ours isn't what the model gives on any machine."""
FAR_UNLIMITED = 0.1
"""The same of values that have no limit, as a share of ours, or of 1 where ours is less."""
NEAR_SHARE = 0.05
"""Of the limit: two machines that are so near to each other, and on both sides of it, may both be honest."""
LEAST_DIFFERENCE = 2e-4
"""Evidence is rounded to 1e-4."""
LEAST_COUNT = 3
"""Near-ties that one machine more or less counts."""

Agreement = Literal["agrees", "another reason", "contradicted", "not replayable"]
StampState = Literal["holds", "none due", "doesn't hold", "missing", "not due", "not replayable"]
Words = Literal["accept", "drop", "slash"]
WORDS: dict[int, Words] = {Outcome.ACCEPT: "accept", Outcome.DROP: "drop", Outcome.SLASH: "slash"}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ComparedCheck(_Frozen):
    """One check as the verdict's evidence has it, and as it is here; None where one side doesn't have it.

    `difference` = here − said, in the statistic's own unit. `is_far`: no kernel makes such a difference.
    """

    check: str
    said: CheckReport | None
    here: CheckReport | None
    difference: float | None
    is_far: bool


class ReplayedVerdict(_Frozen):
    """A verdict of the log, and what it comes to here on the rollouts that it is about.

    `is_close`: the outcomes differ by no more than machines do. `stamp_difference` in nats, None where there is
    nothing to compare. `faults`: in words, what its validator has to answer for; none is a verdict that holds.
    """

    round: UInt32
    seat: UInt32
    validator: Address
    outcome: Words
    reason: str | None
    outcome_here: Words
    reason_here: str | None
    num_audited: int
    num_audited_here: int
    agreement: Agreement
    is_close: bool
    stamp: StampState
    stamp_difference: float | None
    checks: tuple[ComparedCheck, ...]
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.faults


def compare(
    validator: str,
    revealed: Revealed,
    here: Examination,
    exact: Sequence[str],
    stamp: Stamp,
    *,
    is_recalled: bool = False,
) -> ReplayedVerdict:
    """`here` is about the rollouts that the verdict looked at, `exact` what of its evidence is false beyond doubt.

    `stamp` is what its seat's has to be. `is_recalled`: what the verdict remembers has been looked up, so that `here`
    says whether it was so.
    """
    verdict, evidence = revealed.verdict, revealed.evidence
    decisive = worst(here.results)
    reason, ours = verdict.reject_reason, RejectReason(decisive.reason) if decisive.reason else None
    agreement = _agreement(verdict.outcome, reason, decisive, is_recalled=is_recalled)
    checks = tuple(_compared(evidence.checks, here.results))
    state, difference = _stamp(revealed, stamp, ours)
    faults = [*exact, *_false_sum(evidence.checks, verdict.outcome, reason)]
    if agreement != "not replayable":
        faults += _left_out(checks)
    if agreement == "contradicted":
        faults.insert(0, f"said {_said(verdict.outcome, reason)}, here it is {_said(decisive.outcome, ours)}")
    elif agreement != "not replayable" and (far := [one.check for one in checks if one.is_far]):
        faults.append(f"numbers that no machine gives: {', '.join(far)}")
    if state in ("doesn't hold", "missing", "not due"):
        off = "" if difference is None else f", {difference:.4g} nats off"
        faults.append(f"its work stamp {_STAMP_FAULTS[state]}{off}")
    return ReplayedVerdict(
        round=verdict.round,
        seat=verdict.seat,
        validator=validator,
        outcome=WORDS[verdict.outcome],
        reason=reason.value if reason else None,
        outcome_here=WORDS[decisive.outcome],
        reason_here=decisive.reason,
        num_audited=evidence.num_audited,
        num_audited_here=here.num_audited,
        agreement=agreement,
        is_close=agreement == "contradicted" and _is_close(checks),
        stamp=state,
        stamp_difference=difference,
        checks=checks,
        faults=tuple(faults),
    )


_STAMP_FAULTS = {
    "doesn't hold": "isn't of this model",
    "missing": "is missing",
    "not due": "answers what a cheap check had decided",
}


def _agreement(outcome: int, reason: RejectReason | None, decisive: CheckResult, *, is_recalled: bool) -> Agreement:
    if reason in (OF_MEMORY, OF_RECORD) and not is_recalled:
        return "not replayable"
    if outcome != decisive.outcome:
        return "contradicted"
    return "agrees" if (reason.value if reason else None) == decisive.reason else "another reason"


def _stamp(revealed: Revealed, stamp: Stamp, ours: RejectReason | None) -> tuple[StampState, float | None]:
    review = next(reviews_of([revealed], [stamp], ours), None)
    shown = revealed.evidence.work_stamp
    if review is None and not shown and not stamp:
        return "none due", None
    if review is None or revealed.verdict.reject_reason is OF_RECORD:
        return "not replayable", None
    if review.agrees:
        return ("holds" if shown else "none due"), review.largest_difference
    if not shown:
        return "missing", None
    return ("doesn't hold" if stamp else "not due"), review.largest_difference


def _false_sum(checks: Sequence[CheckResult], outcome: int, reason: RejectReason | None) -> Iterator[str]:
    """A verdict says what its own checks come to."""
    if not checks:
        yield "shows no check at all"
        return
    decisive = worst(checks)
    if (decisive.outcome, decisive.reason) != (outcome, reason.value if reason else None):
        yield f"its own checks come to {_word(decisive.outcome)}, not {_said(outcome, reason)}"


def _left_out(checks: Sequence[ComparedCheck]) -> Iterator[str]:
    """The checks up to the first refusal are all there; one that refused earlier is contradicted, and ends there."""
    refused = any(one.said is not None and one.said.outcome != Outcome.ACCEPT for one in checks)
    missing = [one.check for one in checks if one.said is None]
    if missing and not refused:
        yield f"its evidence leaves out {', '.join(missing)}"


def _compared(said: Sequence[CheckResult], here: Sequence[CheckResult]) -> Iterator[ComparedCheck]:
    """In our order, then what only the verdict has."""
    theirs = {result.check: result for result in said}
    ours = {result.check: as_evidence(result) for result in here}
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        left, right = theirs.get(name), ours.get(name)
        difference = None
        if left and right and left.value is not None and right.value is not None:
            difference = round(right.value - left.value, 6)
        yield ComparedCheck(
            check=name,
            said=CheckReport.of(left) if left else None,
            here=CheckReport.of(right) if right else None,
            difference=difference,
            is_far=difference is not None and right is not None and _is_beyond(right, difference, FAR_SHARE),
        )


def _is_beyond(here: CheckResult, difference: float, share: float) -> bool:
    """Whether a difference is more than this share of the limit, and more than rounding and near-ties make."""
    distance = abs(difference)
    if here.reject_threshold is None:
        assert here.value is not None
        return here.check != FREEDOM_NAME and distance > FAR_UNLIMITED * max(1.0, abs(here.value))
    least = LEAST_COUNT if here.check in COUNTED else LEAST_DIFFERENCE
    return distance > max(least, share * abs(here.reject_threshold))


def _is_close(checks: Sequence[ComparedCheck]) -> bool:
    """Whether each check that comes out otherwise here does so within what machines differ by."""
    otherwise = [one for one in checks if one.said and one.here and one.said.outcome != one.here.outcome]
    return bool(otherwise) and all(
        one.difference is not None and one.here is not None and not _is_beyond(one.here, one.difference, NEAR_SHARE)
        for one in otherwise
    )


def _said(outcome: int, reason: RejectReason | None) -> str:
    return f"{_word(outcome)}{f' for {reason.value}' if reason else ''}"


def _word(outcome: int) -> str:
    return WORDS.get(outcome, f"outcome {outcome}")
