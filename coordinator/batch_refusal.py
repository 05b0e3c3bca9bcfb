"""A batch that the trainer can't train on: a row of it would poison the weights.

In: the trainer's word for which submission, and why. Out: the batch refused, that submission's groups of it unused, all
others pending again, so that the next lease of the step is made by the same rule as any. Such a row has passed
verifiers, who are asked about it by anybody's challenge; the log keeps what the trainer saw.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator import log
from coordinator.batches import REFUSED, batch_row, check_leased
from coordinator.context import Coordinator
from coordinator.db.work import BatchRow, GroupRow
from coordinator.pool import chain_time
from coordinator.use import Unused, leave_unused, move
from protocol.api import BatchOffer, BatchRefusal, Use
from protocol.errors import Rejected
from protocol.reasons import RejectReason


def refuse_batch(coordinator: Coordinator, number: int, refusal: BatchRefusal) -> None:
    """Doing so twice is doing so once.

    Raises NotFound, and Rejected for a batch that is trained on, or hasn't got that submission.
    """
    with coordinator.writing() as session:
        batch = batch_row(session, number)
        if batch.state == REFUSED:
            return
        _check(batch, refusal)
        batch.state = REFUSED
        for group in session.scalars(select(GroupRow).where(GroupRow.batch == number)):
            _let_go(session, group, unfit=group.submission_id == refusal.submission_id)
        root = BatchOffer.model_validate(batch.offer).groups_root
        log.append(
            session,
            "batch.refused",
            root,
            chain_time(session),
            {"number": number, "step": batch.step, "submission_id": refusal.submission_id, "why": refusal.why},
        )


def _check(batch: BatchRow, refusal: BatchRefusal) -> None:
    check_leased(batch)
    members = {group.submission_id for group in BatchOffer.model_validate(batch.offer).groups}
    if refusal.submission_id not in members:
        raise Rejected(
            RejectReason.VALUE_OUT_OF_BOUNDS,
            "a submission of the batch",
            value=refusal.submission_id,
            threshold=f"one of {len(members)}",
        )


def _let_go(session: Session, group: GroupRow, unfit: bool) -> None:
    move(group, Use.PENDING)
    group.batch = None
    if unfit:
        leave_unused(session, group, Unused.UNFIT)
