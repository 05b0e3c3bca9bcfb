"""The append-only log: an event for every state change, written in the same transaction.

In: type, subject, time and data of a change. Out: an `Event` row (a leaf), and now and then a `LogNode` row
(`coordinator/log_nodes.py`). Leaf bytes and tree: design of the log in docs/protocol.md, `protocol/merkle/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, insert, select
from sqlalchemy.orm import Session

from coordinator.db.base import Base
from coordinator.db.chain import Epoch
from coordinator.db.log import Event, LogNode
from coordinator.log_nodes import STRATUM, LogNodes
from protocol.canonical import JsonValue, canonical_json
from protocol.merkle.history import Frontier, Node, event_leaf_hash
from protocol.wire import PROTOCOL_VERSION

ROWS_PER_INSERT = 1000

Leaf = tuple[int, str, str, int, bytes, str]
"""A row of `Event`: its columns in the table's order, as a `Node` has those of `LogNode`."""


class Change(NamedTuple):
    """What a leaf says. `subject` is the id of what changed, or ZERO_HASH; `time` is chain time in seconds."""

    type: str
    subject: str
    time: int
    data: dict[str, JsonValue]


def append(session: Session, event_type: str, subject: str, time: int, data: dict[str, JsonValue]) -> int:
    """Add a leaf, as `Change` says it; returns its number."""
    leaf, nodes = _grow(_frontier(session), Change(event_type, subject, time, data))
    connection = session.connection()
    for table, rows in ((Event, [leaf]), (LogNode, nodes)):
        if rows:
            connection.execute(insert(table), _named(table, rows))
    return leaf[0]


def append_all(session: Session, changes: Iterable[Change]) -> None:
    """Add a leaf for each, in order: the same rows as `append` makes, many at a time."""
    frontier, connection, waiting = _frontier(session), session.connection(), iter(changes)
    while some := [_grow(frontier, change) for change in islice(waiting, ROWS_PER_INSERT)]:
        _insert(connection, Event, [leaf for leaf, _ in some])
        _insert(connection, LogNode, [node for _, nodes in some for node in nodes])


def _insert(connection: Connection, table: type[Base], rows: Sequence[Leaf | Node]) -> None:
    """Rows as the driver takes them: the values are what the columns hold, and need no look at each."""
    if not rows:
        return
    statement = insert(table).compile(dialect=connection.dialect)
    values = list(rows) if statement.positional else _named(table, rows)
    connection.exec_driver_sql(str(statement), values)


def _named(table: type[Base], rows: Sequence[Leaf | Node]) -> list[dict[str, Any]]:
    names = table.__table__.columns.keys()
    return [dict(zip(names, row, strict=True)) for row in rows]


def _grow(frontier: Frontier, change: Change) -> tuple[Leaf, list[Node]]:
    """The row of the leaf, and those of the subtrees that it completes and that are stored."""
    event_type, subject, time, data = change
    index = frontier.size
    event: dict[str, JsonValue] = {
        "schema_version": PROTOCOL_VERSION,
        "index": index,
        "type": event_type,
        "subject": subject,
        "time": time,
        "data": data,
    }
    document = canonical_json(event)
    leaf_hash = event_leaf_hash(subject, document)
    completed = frontier.append(leaf_hash)
    return (index, event_type, subject, time, document, leaf_hash), completed[STRATUM::STRATUM]


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
