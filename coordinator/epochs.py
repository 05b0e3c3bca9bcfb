"""Stage close_epoch: seal what the log has gathered, and queue its head for the chain.

In: the log's leaves since the last epoch. Out: an `epoch.closed` leaf, an `Epoch` row, and the `commitEpoch` call
in the outbox, all in one transaction. Epochs are committed strictly in order: one is closed only when the one
before is indexed on chain and the block of its beacon is mined, so that each commit also stores the beacon of
the last, and at most one is ever on its way.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from coordinator.context import Coordinator
from coordinator.db.chain import ChainHead, Epoch
from coordinator.db.log import Event
from coordinator.door import log_refusals
from coordinator.forced import refuse_forced
from coordinator.log import append, log_size
from coordinator.log_nodes import LogNodes
from coordinator.outbox import queue_call, queue_calls
from coordinator.pool import chain_time
from coordinator.refusals import Key
from protocol.api import EpochView
from protocol.chain.contracts import encode
from protocol.merkle.history import consistency_proof, root_of
from protocol.wire import ZERO_HASH

CLOSED = "epoch.closed"


def newest_epoch(session: Session) -> Epoch | None:
    return session.scalar(select(Epoch).order_by(Epoch.epoch.desc()).limit(1))


def can_close_epoch(session: Session, epoch_seconds: float, *, forced: bool = False) -> bool:
    """Whether the open epoch is old enough (or wanted now), and the one before it out of the way."""
    if log_size(session) == 0:
        return False
    last = newest_epoch(session)
    if last is not None and not _is_behind(session, last):
        return False
    return forced or chain_time(session) >= _opened_time(session, last) + epoch_seconds


def close_epoch(coordinator: Coordinator, *, forced: bool = False) -> None:
    """Close the open epoch if it can be closed; `forced`: however young it is."""
    epoch_seconds = coordinator.config.epoch_seconds
    with coordinator.reading() as session:
        if not can_close_epoch(session, epoch_seconds, forced=forced):
            return
    refusals = coordinator.refusals.counts()
    with coordinator.writing() as session:
        if not can_close_epoch(session, epoch_seconds, forced=forced):
            return
        epoch, proof = _close(session, refusals)
        head = (coordinator.config.pool_id, epoch.epoch, epoch.size, epoch.root)
        call = encode("ledger", "commitEpoch", *head, proof)
        queue_call(session, f"epoch:{epoch.epoch}", "ledger", call)
    coordinator.refusals.forget(refusals)


def seal_epochs(coordinator: Coordinator) -> None:
    """Stage of the loop: queue `sealEpoch` for beacons that no commit will store any more (the commit was late)."""
    pool_id = coordinator.config.pool_id
    with coordinator.reading() as session:
        head, newest = session.get(ChainHead, 1), newest_epoch(session)
        late = _unsealed_before(session, newest.epoch if newest else 0, head.number if head else 0)
    queue_calls(
        coordinator,
        "ledger",
        {f"seal-epoch:{e.epoch}:{e.beacon_block}": encode("ledger", "sealEpoch", pool_id, e.epoch) for e in late},
    )


def is_epoch_sealed(coordinator: Coordinator, epoch: int, block: int | str) -> bool:
    """Whether the chain has this epoch's beacon as of a block, whoever stored it."""
    pool_id = coordinator.config.pool_id
    if not is_epoch_committed(coordinator, epoch, block):
        return False
    return bool(coordinator.chain.read("ledger", "epochBeacon", pool_id, epoch, block=block) != ZERO_HASH)


def is_epoch_committed(coordinator: Coordinator, epoch: int, block: int | str) -> bool:
    """Whether the chain has this epoch as of a block, whoever sent it."""
    return int(coordinator.chain.read("ledger", "epochCount", coordinator.config.pool_id, block=block)) > epoch


def epoch_views(session: Session, after: int, limit: int) -> list[EpochView]:
    """Closed epochs past number `after`, in order."""
    rows = session.scalars(select(Epoch).where(Epoch.epoch > after).order_by(Epoch.epoch).limit(limit))
    return [
        EpochView(
            epoch=row.epoch,
            size=row.size,
            root=row.root,
            transaction=row.transaction_hash,
            block=row.block,
            beacon_hash=row.beacon_hash,
        )
        for row in rows
    ]


def _close(session: Session, refusals: Mapping[Key, int]) -> tuple[Epoch, tuple[str, ...]]:
    """Append the epoch's own leaf and fix its head; the proof that the last head is a prefix of it."""
    last = newest_epoch(session)
    number = 0 if last is None else last.epoch + 1
    refuse_forced(session, number)
    log_refusals(session, number, refusals)
    append(session, CLOSED, ZERO_HASH, chain_time(session), {"epoch": number})
    session.flush()
    nodes, size = LogNodes(session), log_size(session)
    epoch = Epoch(epoch=number, size=size, root=root_of(nodes, size))
    session.add(epoch)
    return epoch, consistency_proof(nodes, 0 if last is None else last.size, size)


def _unsealed_before(session: Session, newest: int, head_block: int) -> list[Epoch]:
    """Epochs whose successor is on chain and whose beacon can be read, but isn't stored."""
    successor = aliased(Epoch)
    return list(
        session.scalars(
            select(Epoch)
            .join(successor, successor.epoch == Epoch.epoch + 1)
            .where(
                successor.block.is_not(None),
                Epoch.epoch < newest,
                Epoch.beacon_hash.is_(None),
                Epoch.beacon_block <= head_block,
            )
        )
    )


def _is_behind(session: Session, last: Epoch) -> bool:
    """Whether a commit mined from now on can store the beacon of `last`."""
    head = session.get(ChainHead, 1)
    if last.block is None or last.beacon_block is None or head is None:
        return False
    return head.number >= last.beacon_block


def _opened_time(session: Session, last: Epoch | None) -> int:
    """Chain seconds at which the open epoch began: when the last one was closed, or with the first leaf."""
    index = 0 if last is None else last.size - 1
    return session.scalars(select(Event.time).where(Event.index == index)).one()
