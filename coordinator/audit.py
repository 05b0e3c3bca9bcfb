"""What an auditor may ask of the log: entries, and proofs from its stored subtrees in O(log n).

In: `Event` and `LogNode` rows. Out: the shapes of `protocol/api.py`; every proof leads to an anchored head.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from coordinator.db.chain import Epoch
from coordinator.db.log import Event
from coordinator.log_nodes import LogNodes
from protocol.api import ConsistencyProof, InclusionProof, LogEntry
from protocol.canonical import hex0x, sha256
from protocol.errors import NotFound
from protocol.events import LogEvent
from protocol.merkle.history import consistency_proof, inclusion_proof
from protocol.wire import ZERO_HASH

PAGE_EVENTS = 100


class StoredLog:
    """This coordinator's log as `protocol/events.py` asks for it."""

    def __init__(self, session: Session, max_async: int) -> None:
        self._session = session
        self.max_async = max_async

    def about(self, subject: str) -> Iterator[LogEvent]:
        return self._matching(0, subject, None)

    def of_type(self, event_type: str, start: int) -> Iterator[LogEvent]:
        return self._matching(start, None, event_type)

    def _matching(self, start: int, subject: str | None, event_type: str | None) -> Iterator[LogEvent]:
        while page := log_entries(self._session, start, PAGE_EVENTS, subject, event_type):
            yield from (LogEvent.of(entry.event) for entry in page)
            start = page[-1].index + 1


def log_entry(event: Event) -> LogEntry:
    return LogEntry(
        index=event.index,
        subject=event.subject,
        event_hash=hex0x(sha256(event.document)),
        leaf_hash=event.leaf_hash,
        event=json.loads(event.document),
    )


def log_entries(
    session: Session, start: int, limit: int, subject: str | None = None, event_type: str | None = None
) -> list[LogEntry]:
    """Leaves from number `start` on, anchored or not; of one `subject` or `event_type` where these are given."""
    query = _matching(select(Event).where(Event.index >= start), subject, event_type)
    return [log_entry(row) for row in session.scalars(query.order_by(Event.index).limit(limit))]


def anchor_of(session: Session, index: int) -> Epoch | None:
    """The first epoch on chain that holds leaf `index`; None while it isn't anchored."""
    anchored = select(Epoch).where(Epoch.size > index, Epoch.block.is_not(None))
    return session.scalar(anchored.order_by(Epoch.epoch).limit(1))


def inclusion(session: Session, index: int) -> InclusionProof:
    """That leaf `index` is under the root of the first epoch that holds it. Raises NotFound until one is on chain."""
    event, epoch = session.get(Event, index), anchor_of(session, index)
    if event is None or epoch is None:
        raise NotFound("this leaf isn't anchored on chain", f"leaf {index}", "ask again after the next epoch")
    return InclusionProof(
        index=index,
        leaf_hash=event.leaf_hash,
        size=epoch.size,
        root=epoch.root,
        epoch=epoch.epoch,
        path=inclusion_proof(LogNodes(session), index, epoch.size),
    )


def consistency(session: Session, old_epoch: int, new_epoch: int) -> ConsistencyProof:
    """That the log at `old_epoch` is a prefix of the log at `new_epoch`. Raises NotFound for an epoch not closed."""
    old, new = _closed(session, old_epoch), _closed(session, new_epoch)
    if old.epoch > new.epoch:
        raise NotFound("a log has no proof backwards", f"from epoch {old_epoch} to {new_epoch}", "swap them")
    return ConsistencyProof(
        old_epoch=old.epoch,
        new_epoch=new.epoch,
        old_size=old.size,
        new_size=new.size,
        old_root=old.root,
        new_root=new.root,
        path=consistency_proof(LogNodes(session), old.size, new.size),
    )


def _matching(query: Select[Event], subject: str | None, event_type: str | None) -> Select[Event]:
    """With both filters the database walks the rarer one's index: few leaves share a subject, but for zero."""
    if subject is None and event_type is None:
        return query
    if subject is None:
        return query.where(Event.type == event_type)
    if event_type is None:
        return query.where(Event.subject == subject)
    if subject == ZERO_HASH:
        return query.where(Event.type == event_type, Event.subject.concat("") == subject)
    return query.where(Event.subject == subject, Event.type.concat("") == event_type)


def _closed(session: Session, number: int) -> Epoch:
    epoch = session.get(Epoch, number)
    if epoch is None:
        raise NotFound("no such epoch", str(number), "GET /v1/epochs lists them")
    return epoch
