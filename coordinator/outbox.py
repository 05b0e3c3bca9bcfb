"""Calls to the chain that must happen exactly once, written in the transaction of the change that causes them.

In: a purpose and a call. Out: an `Outbox` row, which `coordinator/sender.py` sends, in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from coordinator.context import Coordinator
from coordinator.db.log import Outbox


class CallState(StrEnum):
    """`mined` is undone by a reorg: the call is then looked for again, and sent again where it is gone.

    That is found out when its block is indexed (`confirm_calls`), or indexed and gone again (`unsettle_calls`).
    """

    QUEUED = "queued"
    SENT = "sent"
    MINED = "mined"


def is_queued(session: Session, purpose: str) -> bool:
    """Whether this call is queued, sent or mined already."""
    return session.scalar(select(Outbox.id).where(Outbox.purpose == purpose)) is not None


def queue_call(session: Session, purpose: str, contract: str, data: bytes) -> None:
    """Queue a call of `contract` once: the same purpose again changes nothing.

    `purpose` is `<kind>:<number>…`; the kind says how its effect is recognised on chain (`coordinator/sender.py`).
    """
    if not is_queued(session, purpose):
        session.add(Outbox(purpose=purpose, contract=contract, data=data, state=CallState.QUEUED))


def queue_calls(coordinator: Coordinator, contract: str, calls: Mapping[str, bytes]) -> None:
    """Queue several calls by purpose, in a transaction of their own; writes nothing where all are known."""
    with coordinator.reading() as session:
        new = [purpose for purpose in calls if not is_queued(session, purpose)]
    if new:
        with coordinator.writing() as session:
            for purpose in new:
                queue_call(session, purpose, contract, calls[purpose])


def confirm_calls(session: Session, first_block: int, last_block: int, blocks: Mapping[str, int]) -> None:
    """Blocks are confirmed: calls that were mined in them, as far as was known, must be there. `blocks` says in which.

    A reorg that is shallower than the pool's confirmations isn't indexed. What it has dropped is looked for again.
    """
    mined = select(Outbox).where(Outbox.state == CallState.MINED, Outbox.block.between(first_block, last_block))
    for row in session.scalars(mined):
        row.block = next((blocks[one] for one in (row.transaction_hash, *row.replaced) if one in blocks), None)
        if row.block is None:
            _unsettle(row)


def unsettle_calls(session: Session, fork_block: int) -> None:
    """Calls that were mined past `fork_block` may be gone: they are looked for again, and sent again if they are."""
    is_past = or_(Outbox.block > fork_block, Outbox.block.is_(None))
    for row in session.scalars(select(Outbox).where(Outbox.state == CallState.MINED, is_past)):
        _unsettle(row)


def _unsettle(row: Outbox) -> None:
    row.state = CallState.QUEUED if row.raw is None else CallState.SENT
    row.block = None
