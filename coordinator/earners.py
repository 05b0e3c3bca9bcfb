"""Who earns by a decision: validators whose verdict came in time, is of its mind, and whose work stamp isn't disputed.

In: a submission, a round, and which way it was decided. Out: validators, in drawn order.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator.db.work import VerdictRow
from coordinator.stamps import disputed_stamps
from protocol.reasons import Outcome


def earners(session: Session, submission_id: str, round_number: int, *, accepted: bool) -> list[str]:
    """Of this round alone; how many of them are paid is for the caller."""
    disputed = disputed_stamps(session, submission_id)
    verdicts = session.scalars(
        select(VerdictRow)
        .where(VerdictRow.submission_id == submission_id, VerdictRow.round == round_number, VerdictRow.in_time)
        .order_by(VerdictRow.draw)
    )
    return [
        verdict.validator
        for verdict in verdicts
        if (verdict.outcome == Outcome.ACCEPT) == accepted and (verdict.round, verdict.seat) not in disputed
    ]
