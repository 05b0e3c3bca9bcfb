"""`proofpool audit verifiers`: what each validator has done, and how that stood up to what came after.

In: `Judging`, the log's events about it. Out: `Accountability`, the same for the same log: validators in order of
address, pairs in order of both, overturned verdicts in the log's order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from protocol.reasons import Outcome
from protocol.stamp import is_disputed
from verifier.audit.reports.judging import Finding, Judged, Judging, TurnState

MAX_LISTED = 1_000
"""Overturned verdicts in the report; of more the number is told."""
INSTANCES = ("decision", "reaudit", "case")


@dataclass(frozen=True)
class Turns:
    """Draws: num_drawn = num_in_time + num_missed + num_open. `num_late` of the missed were revealed afterwards."""

    num_drawn: int
    num_in_time: int
    num_missed: int
    num_late: int
    num_open: int


@dataclass(frozen=True)
class Audited:
    """Settled submissions, and how many of them were drawn again: `num_open` and the rest add up to `num_drawn`."""

    num_settled: int
    num_drawn: int
    num_agreed: int
    num_disagreed: int
    num_undecided: int
    num_open: int


@dataclass(frozen=True)
class ValidatorRow:
    """One validator. Times are chain seconds from a draw to its verdict, None where there is none.

    `overturned`: verdicts against which the last instance spoke, by that instance. `num_vindicated`: those for which it
    spoke, where a lower one had spoken against them. `audited`: the settled submissions that it judged in round 0.
    """

    validator: str
    seats: tuple[int, ...]
    verdicts: dict[str, int]
    turns: Turns
    median_seconds: int | None
    p90_seconds: int | None
    overturned: dict[str, int]
    num_vindicated: int
    num_stamps_reviewed: int
    num_stamps_disputed: int
    audited: Audited
    pay_wei: str


@dataclass(frozen=True)
class Pair:
    """How often two validators judged the same submission, and how often their outcomes were the same, or not."""

    validators: tuple[str, str]
    num_both: int
    num_same: int
    num_other: int


@dataclass(frozen=True)
class Overturned:
    """A verdict, and the last instance that spoke of its submission: decision, reaudit or case."""

    submission_id: str
    validator: str
    round: int
    outcome: str
    by: str


@dataclass(frozen=True)
class Accountability:
    """The report."""

    expected_bps: int
    """The share of settled work that the pool has judged again, in hundredths of a percent."""
    audited: Audited
    validators: tuple[ValidatorRow, ...]
    agreement: tuple[Pair, ...]
    overturned: tuple[Overturned, ...]
    num_overturned: int
    unreadable: dict[str, int | None]

    def as_json(self, log: dict[str, Any]) -> dict[str, Any]:
        return {"schema_version": 1, "log": log, **asdict(self)}


def account_for(judging: Judging) -> Accountability:
    """Count. Everything follows from the events alone."""
    overturned = [found for submission_id in judging.submissions for found in _overturned(judging, submission_id)]
    return Accountability(
        expected_bps=judging.reaudit_bps,
        audited=_audited(judging.submissions.values()),
        validators=_rows(judging, overturned),
        agreement=_agreements(judging.submissions.values()),
        overturned=tuple(overturned[:MAX_LISTED]),
        num_overturned=len(overturned),
        unreadable=judging.readings.as_json(),
    )


def percentile(counted: Counter[int], percent: int) -> int | None:
    """The smallest value that at least so many percent of the values don't exceed; None of none.

    >>> percentile(Counter([1, 2, 3, 4]), 50), percentile(Counter(), 50)
    (2, None)
    """
    wanted, seen = -(-counted.total() * percent // 100), 0
    for value in sorted(counted):
        seen += counted[value]
        if seen >= wanted:
            return value
    return None


def _rows(judging: Judging, overturned: Iterable[Overturned]) -> tuple[ValidatorRow, ...]:
    turns: dict[str, Counter[TurnState]] = {}
    for turn in judging.turns.values():
        turns.setdefault(turn.validator, Counter())[turn.state] += 1
    judged: dict[str, list[tuple[Judged, Finding]]] = {}
    for submission in judging.submissions.values():
        for finding in submission.findings:
            judged.setdefault(finding.validator, []).append((submission, finding))
    by_instance = Counter((one.validator, one.by) for one in overturned)
    reviewed = Counter(validator for _, _, validator in judging.stamp_votes)
    disputed = Counter(
        validator for (_, _, validator), votes in judging.stamp_votes.items() if is_disputed(votes[True], votes[False])
    )
    return tuple(
        _row(
            judging,
            validator,
            turns.get(validator, Counter()),
            judged.get(validator, []),
            overturned={instance: by_instance[validator, instance] for instance in INSTANCES},
            num_stamps=(reviewed[validator], disputed[validator]),
        )
        for validator in sorted(turns.keys() | judged.keys())
    )


def _row(
    judging: Judging,
    validator: str,
    turns: Counter[TurnState],
    judged: list[tuple[Judged, Finding]],
    *,
    overturned: dict[str, int],
    num_stamps: tuple[int, int],
) -> ValidatorRow:
    outcomes = Counter(finding.outcome for _, finding in judged)
    seconds = judging.seconds.get(validator, Counter[int]())
    late = turns[TurnState.LATE]
    return ValidatorRow(
        validator=validator,
        seats=tuple(sorted(judging.seats.get(validator, ()))),
        verdicts={outcome.name.lower(): outcomes[outcome] for outcome in Outcome},
        turns=Turns(
            num_drawn=turns.total(),
            num_in_time=turns[TurnState.IN_TIME],
            num_missed=turns[TurnState.MISSED] + late,
            num_late=late,
            num_open=turns[TurnState.OPEN],
        ),
        median_seconds=percentile(seconds, 50),
        p90_seconds=percentile(seconds, 90),
        overturned=overturned,
        num_vindicated=sum(_is_vindicated(submission, finding) for submission, finding in judged),
        num_stamps_reviewed=num_stamps[0],
        num_stamps_disputed=num_stamps[1],
        audited=_audited(submission for submission, finding in judged if finding.round == 0),
        pay_wei=str(judging.pay_wei[validator]),
    )


def _audited(submissions: Iterable[Judged]) -> Audited:
    settled = [submission for submission in submissions if submission.accepted is not None]
    states = Counter(submission.reaudit for submission in settled if submission.reaudit)
    return Audited(
        num_settled=len(settled),
        num_drawn=states.total(),
        num_agreed=states["agreed"],
        num_disagreed=states["disagreed"],
        num_undecided=states["undecided"],
        num_open=states["drawn"],
    )


def _overturned(judging: Judging, submission_id: str) -> Iterator[Overturned]:
    submission = judging.submissions[submission_id]
    for finding in submission.findings:
        said = submission.contradicts(finding)
        if said and list(said.values())[-1]:
            outcome = finding.outcome.name.lower()
            yield Overturned(submission_id, finding.validator, finding.round, outcome, by=list(said)[-1])


def _is_vindicated(submission: Judged, finding: Finding) -> bool:
    *lower, last = list(submission.contradicts(finding).values()) or [True]
    return not last and any(lower)


def _agreements(submissions: Iterable[Judged]) -> tuple[Pair, ...]:
    """Of each pair's first verdicts on a submission, of whichever round."""
    same, other = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for submission in submissions:
        first = {finding.validator: finding.outcome for finding in reversed(submission.findings)}
        for pair in combinations(sorted(first), 2):
            (same if first[pair[0]] is first[pair[1]] else other)[pair] += 1
    return tuple(
        Pair(pair, same[pair] + other[pair], same[pair], other[pair]) for pair in sorted(same.keys() | other.keys())
    )
