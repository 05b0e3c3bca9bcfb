"""Accepted groups that no later step can use: they end unused, and the log says why.

    surplus   a batch that they were young enough for was made without them: others were enough
    stale     they were accepted when the last such batch was made already

In: pending groups past the lag, the log's order of acceptances and batches. Out: `group.unused` events. Which it is
tells what to change: less is to be leased at once, or it is to come sooner.
"""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from coordinator.db.log import Event
from coordinator.db.work import BatchRow, GroupRow
from coordinator.use import Unused, leave_unused
from protocol.api import BatchOffer, Use


def leftovers(session: Session, oldest_version: int) -> list[GroupRow]:
    """Pending groups older than that, in the order of their ids."""
    return list(
        session.scalars(
            select(GroupRow)
            .where(GroupRow.use == Use.PENDING, GroupRow.policy_version < oldest_version)
            .order_by(GroupRow.submission_id, GroupRow.group)
        )
    )


def leave_leftovers(session: Session, oldest_version: int, max_async: int) -> None:
    """Each of them unused, with its reason."""
    batch_made = dict[int, int]()
    for group in leftovers(session, oldest_version):
        last_step = group.policy_version + 1 + max_async
        if last_step not in batch_made:
            batch_made[last_step] = _last_batch_made(session, last_step)
        was_there = _accepted(session, group.submission_id) < batch_made[last_step]
        leave_unused(session, group, Unused.SURPLUS if was_there else Unused.STALE)


def _last_batch_made(session: Session, last_step: int) -> int:
    """The leaf of the last batch of any step up to `last_step`; −1 where there was none."""
    of_steps = select(BatchRow.offer).where(BatchRow.step <= last_step).order_by(BatchRow.number.desc()).limit(1)
    offer = session.scalar(of_steps)
    if offer is None:
        return -1
    return _last_leaf(session, "batch.leased", BatchOffer.model_validate(offer).groups_root)


def _accepted(session: Session, submission_id: str) -> int:
    """The leaf of its acceptance; of the last one, where it was challenged meanwhile and couldn't be handed out."""
    return _last_leaf(session, "submission.accepted", submission_id)


def _last_leaf(session: Session, event_type: str, subject: str) -> int:
    index = session.scalar(select(func.max(Event.index)).where(Event.subject == subject, Event.type == event_type))
    return -1 if index is None else index
