"""Work stamps: this seat's own, and what it says of those that were revealed before.

In: the seats whose stamps are asked for, the case, colleagues' revealed verdicts. Out: the audit that answers all their
challenges in the one run of the model, the stamps that follow from it, and `StampReview`s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocol.checks.audit_rows import Audit, drawn_rollouts
from protocol.checks.case import Case
from protocol.reasons import RejectReason
from protocol.stamp import MAX_DIFFERENCE, StampPair, largest_difference, stamp_challenge, stamp_of, stamp_seed
from protocol.wire import Evidence, StampReview, Verdict

OF_MEMORY = RejectReason.DUPLICATE
"""The one cheap refusal that rests on what a verifier has seen before: no other can recompute it."""

Stamp = tuple[float, ...]


@dataclass(frozen=True)
class StampSeat:
    """Whose stamp: the seat that `beacon_hash` drew for a submission and round."""

    beacon_hash: str
    submission_id: str
    round: int
    seat: int

    def rollouts(self, case: Case) -> tuple[int, ...]:
        """Numbers of the rollouts that this seat's round looks at."""
        return drawn_rollouts(case.rules.audit, len(case.rollouts), self.beacon_hash, self.submission_id, self.round)

    def challenge(self, case: Case) -> tuple[StampPair, ...]:
        """What this seat's stamp answers."""
        seed = stamp_seed(self.beacon_hash, self.submission_id, self.round, self.seat)
        completions = {number: case.rollouts[number].output_tokens.tolist() for number in self.rollouts(case)}
        return stamp_challenge(
            seed, completions, case.terms.model_config.vocab_size, num_pairs=case.rules.audit.num_stamps
        )


@dataclass(frozen=True)
class Revealed:
    """A colleague's verdict on the same submission, checked to be its drawn seat's, and the seat."""

    seat: StampSeat
    verdict: Verdict
    evidence: Evidence


def audit_for(seats: Sequence[StampSeat], case: Case) -> Audit:
    """The audit of the first of `seats`, with every seat's challenge, and with all that their rounds look at.

    So a re-audit is about what round 0 has judged as well, whoever of it was asked for which rows: seats of one round
    look at the same.
    """
    asked = tuple(pair for seat in seats for pair in seat.challenge(case))
    return Audit(tuple(sorted({number for seat in seats for number in seat.rollouts(case)})), asked)


def stamps_of(case: Case | None, seats: Sequence[StampSeat]) -> list[Stamp]:
    """What each of these seats' stamps has to be; empty ones where the model hasn't run."""
    if case is None or case.measurements is None:
        return [()] * len(seats)
    answers = iter(case.measurements.asked.tolist())
    return [stamp_of(next(answers) for _ in seat.challenge(case)) for seat in seats]


def reviews_of(
    revealed: Sequence[Revealed], expected: Sequence[Stamp], reason: RejectReason | None
) -> Iterator[StampReview]:
    """What there is to say of each revealed stamp, `expected` being the same recomputed; `reason` is our own refusal.

    Nothing where one of the two verdicts rests on its verifier's memory: whether a stamp was due isn't known then.
    """
    for one, stamp in zip(revealed, expected, strict=True):
        is_missing_one = not one.evidence.work_stamp or not stamp
        if is_missing_one and OF_MEMORY in (reason, one.verdict.reject_reason):
            continue
        difference = largest_difference(one.evidence.work_stamp, stamp)
        rightly_none = not one.evidence.work_stamp and not stamp
        agrees = rightly_none if difference is None else difference <= MAX_DIFFERENCE
        yield StampReview(round=one.seat.round, seat=one.seat.seat, agrees=agrees, largest_difference=difference)
