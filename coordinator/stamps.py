"""Reviews of work stamps: what later seats found of earlier seats' (`protocol/stamp.py`).

In: a verdict that is being revealed, with its evidence. Out: `StampReviewRow` rows, a `stamp.disputed` event for each
that speaks against a stamp, and which stamps more seats dispute than confirm. A seat's own stamp, and verdicts that
aren't there, can't be reviewed; a second review by the same validator counts for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sqlalchemy import Integer, cast, func, select
from sqlalchemy.orm import Session

from coordinator import log
from coordinator.db.work import StampReviewRow, VerdictRow
from coordinator.pool import chain_time
from protocol.api import VerdictReveal
from protocol.stamp import is_contested, is_disputed
from protocol.wire import StampReview

StampKey = tuple[int, int]
"""Round and seat of the verdict that carries a stamp."""


def reviews_in(session: Session, reviewer: str, opened: VerdictReveal) -> dict[str, list[StampReview]]:
    """The reviews in a reveal that count, by the validator whose stamp each is about."""
    rows = session.scalars(select(VerdictRow).where(VerdictRow.submission_id == opened.verdict.message.submission_id))
    revealed = {(row.round, row.seat): row.validator for row in rows}
    counting: dict[str, list[StampReview]] = {}
    for key, review in {(review.round, review.seat): review for review in opened.evidence.stamp_reviews}.items():
        if revealed.get(key, reviewer) != reviewer:
            counting.setdefault(revealed[key], []).append(review)
    return counting


def keep_reviews(
    session: Session, submission_id: str, reviewer: str, seat: int, reviews: Mapping[str, list[StampReview]]
) -> None:
    """Store reviews that count; each that disputes a stamp is an event."""
    for validator, review in [(validator, review) for validator, some in reviews.items() for review in some]:
        key = (submission_id, review.round, review.seat, reviewer)
        if session.get(StampReviewRow, key) is None:
            session.add(
                StampReviewRow(
                    submission_id=submission_id,
                    round=review.round,
                    seat=review.seat,
                    reviewer=reviewer,
                    validator=validator,
                    agrees=review.agrees,
                    largest_difference=review.largest_difference,
                )
            )
            if not review.agrees:
                _note_dispute(session, submission_id, validator, review, seat)


def votes_on(session: Session, submission_id: str) -> dict[StampKey, Counter[bool]]:
    """Reviews for (True) and against (False) each stamp of a submission."""
    votes: dict[StampKey, Counter[bool]] = {}
    for row in session.scalars(select(StampReviewRow).where(StampReviewRow.submission_id == submission_id)):
        votes.setdefault((row.round, row.seat), Counter())[row.agrees] += 1
    return votes


def disputed_stamps(session: Session, submission_id: str) -> set[StampKey]:
    votes = votes_on(session, submission_id)
    return {key for key, count in votes.items() if is_disputed(count[True], count[False])}


def has_contested_stamp(session: Session, submission_id: str) -> bool:
    """Whether one more review can turn what the reviews of some stamp say."""
    return any(is_contested(count[True], count[False]) for count in votes_on(session, submission_id).values())


def num_disputed_by_validator(session: Session) -> dict[str, int]:
    """How many of each validator's stamps more seats dispute than confirm; those with none are left out."""
    agreeing = func.sum(cast(StampReviewRow.agrees, Integer))
    stamps = select(StampReviewRow.validator, agreeing, func.count() - agreeing).group_by(
        StampReviewRow.submission_id, StampReviewRow.round, StampReviewRow.seat, StampReviewRow.validator
    )
    return dict(Counter(validator for validator, *votes in session.execute(stamps) if is_disputed(*votes)))


def _note_dispute(session: Session, submission_id: str, validator: str, review: StampReview, seat: int) -> None:
    log.append(
        session,
        "stamp.disputed",
        submission_id,
        chain_time(session),
        {
            "round": review.round,
            "seat": review.seat,
            "validator": validator,
            "by_seat": seat,
            "largest_difference": review.largest_difference,
        },
    )
