"""The append-only log: an event for every state change, written in the same transaction.

In: type, subject, time and data of a change. Out: an `Event` row (a leaf) and the `LogNode` rows of the
subtrees that it completes. Leaf bytes and tree: design of the log in docs/protocol.md, `protocol/merkle/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, func, insert, or_, select
from sqlalchemy.orm import Session

from coordinator.db.base import Base
from coordinator.db.chain import Epoch
from coordinator.db.log import Event, LogNode
from protocol.canonical import JsonValue, canonical_json
from protocol.errors import ProofpoolError
from protocol.merkle.history import Frontier, Node, NodeAddress, event_leaf_hash
from protocol.wire import PROTOCOL_VERSION

ROWS_PER_INSERT = 1000


class LogNodes:
    """The stored subtrees, as `protocol/merkle/history.py` reads them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self, addresses: Sequence[NodeAddress]) -> list[str]:
        """Hashes in the order of `addresses`. Raises ProofpoolError where one is missing."""
        if not addresses:
            return []
        # Each by its own look into the index: of a list of pairs SQLite makes a walk over the whole table.
        wanted = or_(*(and_(LogNode.level == one.level, LogNode.position == one.position) for one in addresses))
        rows = self._session.execute(select(LogNode.level, LogNode.position, LogNode.node_hash).where(wanted))
        found = {NodeAddress(level, position): node_hash for level, position, node_hash in rows}
        if missing := [address for address in addresses if address not in found]:
            raise ProofpoolError("the log's tree has a hole", str(missing[0]), "restore the database from a backup")
        return [found[address] for address in addresses]


class Change(NamedTuple):
    """What a leaf says. `subject` is the id of what changed, or ZERO_HASH; `time` is chain time in seconds."""

    type: str
    subject: str
    time: int
    data: dict[str, JsonValue]


def append(session: Session, event_type: str, subject: str, time: int, data: dict[str, JsonValue]) -> Event:
    """Add a leaf, as `Change` says it."""
    leaf, nodes = _grow(_frontier(session), Change(event_type, subject, time, data))
    event = Event(**leaf)
    session.add(event)
    session.add_all(LogNode(**_row(node)) for node in nodes)
    return event


def append_all(session: Session, changes: Iterable[Change]) -> None:
    """Add a leaf for each, in order: the same rows as `append` makes, past the session's objects, many at a time."""
    frontier, connection, waiting = _frontier(session), session.connection(), iter(changes)
    while some := [_grow(frontier, change) for change in islice(waiting, ROWS_PER_INSERT)]:
        _insert(connection, Event, [leaf for leaf, _ in some])
        _insert(connection, LogNode, [_row(node) for _, nodes in some for node in nodes])


def _insert(connection: Connection, table: type[Base], rows: Sequence[dict[str, Any]]) -> None:
    """Rows as the driver takes them: the values are what the columns hold, and need no look at each."""
    statement = insert(table).compile(dialect=connection.dialect)
    names = statement.positiontup
    values = [tuple(map(row.__getitem__, names)) for row in rows] if names else list(rows)
    connection.exec_driver_sql(str(statement), values)


def _grow(frontier: Frontier, change: Change) -> tuple[dict[str, Any], list[Node]]:
    """The row of the leaf, and the subtrees that it completes."""
    named: dict[str, Any] = {
        "index": frontier.size,
        "type": change.type,
        "subject": change.subject,
        "time": change.time,
    }
    document = canonical_json({"schema_version": PROTOCOL_VERSION, **named, "data": change.data})
    leaf_hash = event_leaf_hash(change.subject, document)
    return {**named, "document": document, "leaf_hash": leaf_hash}, frontier.append(leaf_hash)


def _row(node: Node) -> dict[str, Any]:
    return {"level": node.level, "position": node.position, "node_hash": node.node_hash}


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
