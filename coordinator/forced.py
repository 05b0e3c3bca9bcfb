"""Submissions that a node forced in on chain: by the epoch that the chain names, the log says what became of each.

    IntakeForced ─┬─▶ submission.received   the file comes and is admitted (`coordinator/intake.py`)
                  └─▶ submission.refused    it isn't: said when that epoch closes, with the last refusal's reason

In: `IntakeForced` events, refusals at the door. Out: `ForcedRefusal` rows, leaves. The event is indexed before the
promised epoch can close: that waits for the one before to be on chain, and so for every block up to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator.context import Coordinator
from coordinator.db.chain import ChainEvent
from coordinator.db.log import Event
from coordinator.db.work import ForcedRefusal
from coordinator.log import append
from coordinator.pool import chain_time
from protocol.errors import Rejected
from protocol.reasons import RejectReason

RECEIVED, REFUSED = "submission.received", "submission.refused"


def note_refusal(coordinator: Coordinator, submission_id: str, refusal: Rejected) -> None:
    """Remember why a forced submission isn't taken in; of any other nothing is kept."""
    with coordinator.reading() as session:
        known = session.get(ForcedRefusal, submission_id)
        if not _is_forced(session, submission_id) or (known is not None and known.reason == refusal.reason):
            return
    with coordinator.writing() as session:
        session.merge(ForcedRefusal(submission_id=submission_id, reason=refusal.reason.value, detail=refusal.why))


def refuse_forced(session: Session, epoch: int) -> None:
    """Before `epoch` closes: a leaf for every forced submission that the log has to have answered by then."""
    for event in _unanswered(session, epoch):
        refusal = session.get(ForcedRefusal, event.subject)
        reason = RejectReason.FILE_MISSING.value if refusal is None else refusal.reason
        append(
            session,
            REFUSED,
            event.subject,
            chain_time(session),
            {"node": event.arguments["node"], "reason": reason, "detail": "" if refusal is None else refusal.detail},
        )


def _unanswered(session: Session, epoch: int) -> Sequence[ChainEvent]:
    answer = select(Event.index).where(Event.subject == ChainEvent.subject, Event.type.in_((RECEIVED, REFUSED)))
    forced = session.scalars(
        select(ChainEvent).where(ChainEvent.name == "IntakeForced", ~answer.exists()).order_by(ChainEvent.id)
    )
    return [event for event in forced if event.arguments["epoch"] <= epoch]


def _is_forced(session: Session, submission_id: str) -> bool:
    forced = select(ChainEvent.id).where(ChainEvent.name == "IntakeForced", ChainEvent.subject == submission_id)
    return session.scalar(forced.limit(1)) is not None
