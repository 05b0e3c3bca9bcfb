"""The append-only log: an event for every state change, written in the same transaction.

In: type, subject, time and data of a change. Out: an `Event` row (a leaf) and the `LogNode` rows of the
subtrees that it completes. Leaf bytes and tree: design of the log in docs/protocol.md, `protocol/merkle/`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from coordinator.db.chain import Epoch
from coordinator.db.log import Event, LogNode
from protocol.canonical import JsonValue, canonical_json
from protocol.errors import ProofpoolError
from protocol.merkle.history import Frontier, NodeAddress, event_leaf_hash
from protocol.wire import PROTOCOL_VERSION


class LogNodes:
    """The stored subtrees, as `protocol/merkle/history.py` reads them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self, addresses: Sequence[NodeAddress]) -> list[str]:
        """Hashes in the order of `addresses`. Raises ProofpoolError where one is missing."""
        if not addresses:
            return []
        key = tuple_(LogNode.level, LogNode.position)
        rows = self._session.scalars(select(LogNode).where(key.in_([tuple(address) for address in addresses])))
        found = {NodeAddress(row.level, row.position): row.node_hash for row in rows}
        if missing := [address for address in addresses if address not in found]:
            raise ProofpoolError("the log's tree has a hole", str(missing[0]), "restore the database from a backup")
        return [found[address] for address in addresses]


def append(session: Session, event_type: str, subject: str, time: int, data: dict[str, JsonValue]) -> Event:
    """Add a leaf. `subject` is the id of what changed, or ZERO_HASH; `time` is chain time in seconds."""
    frontier = _frontier(session)
    document = canonical_json(
        {
            "schema_version": PROTOCOL_VERSION,
            "index": frontier.size,
            "type": event_type,
            "subject": subject,
            "time": time,
            "data": data,
        }
    )
    leaf = event_leaf_hash(subject, document)
    event = Event(index=frontier.size, type=event_type, subject=subject, time=time, document=document, leaf_hash=leaf)
    session.add(event)
    session.add_all(LogNode(level=n.level, position=n.position, node_hash=n.node_hash) for n in frontier.append(leaf))
    return event


def _frontier(session: Session) -> Frontier:
    """The log's right edge, kept with the session while it goes on appending."""
    frontier: Frontier | None = session.info.get("frontier")
    if frontier is None:
        frontier = Frontier.load(LogNodes(session), log_size(session))
        session.info["frontier"] = frontier
    return frontier


def log_size(session: Session) -> int:
    """Number of leaves."""
    last = session.scalar(select(func.max(Event.index)))
    return 0 if last is None else last + 1


def open_epoch(session: Session) -> int:
    """The number of the epoch that the next leaf falls into."""
    last = session.scalar(select(func.max(Epoch.epoch)))
    return 0 if last is None else last + 1


def epoch_of_leaf(session: Session, index: int) -> Epoch | None:
    """The epoch that anchors this leaf; None while it is in the open one."""
    return session.scalar(select(Epoch).where(Epoch.size > index).order_by(Epoch.epoch).limit(1))
