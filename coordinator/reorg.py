"""A reorg: forget what the chain has dropped, and replay what is left.

In: the fork's block. Out: `ChainBlock` and `ChainEvent` rows past it gone, mirrors rebuilt, a `chain.reorged` leaf (the
log itself never shrinks), calls that were mined there looked for again, work on dropped beacons void.
"""

from __future__ import annotations

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from coordinator.db.chain import (
    Allotment,
    ChainBlock,
    ChainEvent,
    CoordinatorBond,
    Earnings,
    Epoch,
    Node,
    Pool,
    Seat,
    Version,
)
from coordinator.db.work import Draw, SubmissionRow
from coordinator.draws import OPEN, ROUND
from coordinator.log import append
from coordinator.mirrors import apply_due_terms, apply_event
from coordinator.outbox import unsettle_calls
from coordinator.pool import chain_time
from coordinator.reaudits import ask_again
from coordinator.tasks import void_tasks
from protocol.wire import ZERO_HASH


def forget_past(session: Session, pool_id: int, fork_block: int) -> None:
    """Make this database what it would be had it read the chain up to `fork_block` only."""
    versions, epochs = _version_beacons(session), _epoch_beacons(session)
    time = chain_time(session)
    session.execute(delete(ChainBlock).where(ChainBlock.number > fork_block))
    session.execute(delete(ChainEvent).where(ChainEvent.block > fork_block))
    _replay(session, pool_id)
    unsettle_calls(session, fork_block)
    append(session, "chain.reorged", ZERO_HASH, time, {"fork_block": fork_block})
    for policy_version in _changed(versions, _version_beacons(session)):
        void_tasks(session, policy_version)
    for epoch in _changed(epochs, _epoch_beacons(session)):
        _void_draws(session, epoch)
        ask_again(session, epoch)


def _replay(session: Session, pool_id: int) -> None:
    """Mirrors from nothing. What only this database knows (closed epochs, statements) is kept."""
    for table in (Pool, CoordinatorBond, Node, Allotment, Seat, Version):
        session.execute(delete(table))
    session.execute(update(Epoch).values(transaction_hash=None, block=None, beacon_block=None, beacon_hash=None))
    session.execute(update(Earnings).values(transaction_hash=None, claimable_time=None))
    session.expire_all()
    for event in session.scalars(select(ChainEvent).order_by(ChainEvent.block, ChainEvent.log_index)).all():
        apply_event(session, event)
    apply_due_terms(session, pool_id, chain_time(session))
    session.flush()


def _void_draws(session: Session, epoch: int) -> None:
    """Turns that a beacon gave which isn't the chain's: those still open are drawn anew."""
    row = session.get_one(Epoch, epoch)
    before = session.get(Epoch, epoch - 1)
    received = select(SubmissionRow.submission_id).where(
        SubmissionRow.log_index < row.size, SubmissionRow.log_index >= (before.size if before else 0)
    )
    session.execute(delete(Draw).where(Draw.state == OPEN, Draw.round == ROUND, Draw.submission_id.in_(received)))


def _version_beacons(session: Session) -> dict[int, str | None]:
    return {row.policy_version: row.beacon_hash for row in session.scalars(select(Version))}


def _epoch_beacons(session: Session) -> dict[int, str | None]:
    return {row.epoch: row.beacon_hash for row in session.scalars(select(Epoch))}


def _changed(old: dict[int, str | None], new: dict[int, str | None]) -> list[int]:
    """Whose beacon was known and isn't the same now."""
    return [number for number, beacon in old.items() if beacon is not None and new.get(number) != beacon]
