"""The pool's log as this verifier has checked it: every leaf re-hashed, every head compared with the chain.

In: log entries from the coordinator, heads from the chain. Out: what was received when, and what was paid to whom
(`verifier/payments.py`), up to each anchored epoch. Nothing is believed before the root over it equals the anchored.
Consumes: entries up to the newest anchored size. Produces: the table `received`, the log's nodes, payments.
Waits for: a head on chain. Unblocked by: `commitEpoch`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.api import LogEntry
from protocol.canonical import canonical_json, hex0x, sha256
from protocol.chain.pool import LogHead
from protocol.errors import VerificationFailed
from protocol.merkle.history import Frontier, Node, NodeAddress, event_leaf_hash_of, inclusion_proof
from verifier.payments import SETTLING, Payments
from verifier.store import transaction

SCHEMA = """
CREATE TABLE IF NOT EXISTS head (epoch INTEGER PRIMARY KEY, size INTEGER NOT NULL, root TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS node (
    level INTEGER NOT NULL, position INTEGER NOT NULL, node_hash TEXT NOT NULL, PRIMARY KEY (level, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS received (
    submission_id TEXT PRIMARY KEY, log_index INTEGER NOT NULL, epoch INTEGER NOT NULL, document TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settling_leaf (
    submission_id TEXT PRIMARY KEY, log_index INTEGER NOT NULL, epoch INTEGER NOT NULL, document TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""

MAX_ENTRIES = 1000
ReadEntries = Callable[[int, int], Sequence[LogEntry]]
"""(first index, how many at most) to log entries in order."""
Observer = Callable[[LogEntry, LogHead], None]
"""Hears of an event under the head that anchors it."""


@dataclass(frozen=True)
class Leaf:
    """An event about a submission: its place in the log, the epoch that anchors it, and its canonical JSON."""

    submission_id: str
    log_index: int
    epoch: int
    document: str

    @property
    def event(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.document)
        return document

    @property
    def time(self) -> int:
        """When it was logged, in chain seconds."""
        return int(self.event["time"])


class Received(Leaf):
    """That the log has a submission."""


class Settled(Leaf):
    """That round 0 is over for a submission. The beacon of its epoch picks and draws round 1."""


class History:
    """The checked log. `observers` hear of each event in the transaction that takes its epoch over."""

    def __init__(self, db: sqlite3.Connection, observers: Sequence[Observer] = ()) -> None:
        self._db = db
        self._observers = observers
        db.executescript(SCHEMA)
        self.payments = Payments(db)

    @property
    def num_epochs(self) -> int:
        """One past the newest epoch that is checked."""
        return int(self._db.execute("SELECT COALESCE(MAX(epoch) + 1, 0) FROM head").fetchone()[0])

    @property
    def size(self) -> int:
        return int(self._db.execute("SELECT COALESCE(MAX(size), 0) FROM head").fetchone()[0])

    def follow(self, heads: Iterable[LogHead], read_entries: ReadEntries) -> None:
        """Check and take over one epoch after the other. Raises VerificationFailed where log and chain differ."""
        for head in heads:
            with transaction(self._db):
                self._take(head, read_entries)

    def received(self, submission_id: str) -> Received | None:
        row = self._db.execute(
            "SELECT submission_id, log_index, epoch, document FROM received WHERE submission_id = ?", (submission_id,)
        ).fetchone()
        return None if row is None else Received(*row)

    def settled(self, submission_id: str) -> Settled | None:
        """The leaf that `payments.settling` is about; None while there is none."""
        row = self._db.execute(
            "SELECT submission_id, log_index, epoch, document FROM settling_leaf WHERE submission_id = ?",
            (submission_id,),
        ).fetchone()
        return None if row is None else Settled(*row)

    def inclusion(self, leaf: Leaf) -> tuple[str, ...]:
        """The path from a leaf to the root that its epoch anchors."""
        (size,) = self._db.execute("SELECT size FROM head WHERE epoch = ?", (leaf.epoch,)).fetchone()
        return inclusion_proof(self, leaf.log_index, size)

    def read(self, addresses: Sequence[NodeAddress]) -> list[str]:
        """Hashes of complete subtrees: this is a `NodeReader`."""
        query = "SELECT node_hash FROM node WHERE level = ? AND position = ?"
        return [str(self._db.execute(query, address).fetchone()[0]) for address in addresses]

    def _take(self, head: LogHead, read_entries: ReadEntries) -> None:
        frontier = Frontier.load(self, self.size)
        for entry, nodes in leaves_up_to(head, frontier, read_entries):
            self._store(nodes)
            self._apply(entry, head.epoch)
            for observe in self._observers:
                observe(entry, head)
        self._db.execute("INSERT INTO head VALUES (?, ?, ?)", (head.epoch, head.size, head.root))

    def _store(self, nodes: Iterable[Node]) -> None:
        self._db.executemany("INSERT INTO node VALUES (?, ?, ?)", nodes)

    def _apply(self, entry: LogEntry, epoch: int) -> None:
        event = entry.event
        if _type_of(event) == "submission.received" and isinstance(event.get("time"), int):
            # The first leaf counts: a submission can't be moved to a later epoch, and so to another draw.
            self._db.execute(
                "INSERT OR IGNORE INTO received VALUES (?, ?, ?, ?)",
                (entry.subject, entry.index, epoch, canonical_json(event).decode()),
            )
        self.payments.note(entry, epoch)
        if _type_of(event) in SETTLING and self.payments.settling(entry.subject) is not None:
            # Only the first one that counts as a settling has an effect here.
            self._db.execute(
                "INSERT OR IGNORE INTO settling_leaf VALUES (?, ?, ?, ?)",
                (entry.subject, entry.index, epoch, canonical_json(event).decode()),
            )


def _type_of(event: dict[str, Any]) -> str:
    """Of an event as a coordinator serves it: any JSON may stand there."""
    kind = event.get("type")
    return kind if isinstance(kind, str) else ""


def checked_leaf(entry: LogEntry, index: int) -> str:
    """The leaf hash of an entry, from its document alone. Raises VerificationFailed where it says something else."""
    event_hash = hex0x(sha256(canonical_json(entry.event)))
    leaf = event_leaf_hash_of(entry.subject, event_hash)
    says = (entry.index, entry.event.get("index"), entry.event.get("subject"), entry.event_hash, entry.leaf_hash)
    if says != (index, index, entry.subject, event_hash, leaf):
        raise VerificationFailed(f"log entry {index} isn't what it says", f"{says}, recomputed {event_hash} and {leaf}")
    return leaf


def leaves_up_to(head: LogHead, frontier: Frontier, read_entries: ReadEntries) -> Iterator[tuple[LogEntry, list[Node]]]:
    """The log's next leaves, each with the subtrees that it completes; `frontier` grows by them up to `head`.

    What came out is to be believed once the iterator has ended. Raises VerificationFailed where the log isn't the one
    that `head` anchors, or isn't served.
    """
    while frontier.size < head.size:
        entries = read_entries(frontier.size, min(MAX_ENTRIES, head.size - frontier.size))
        if not entries:
            raise VerificationFailed(
                "the coordinator holds back log entries", f"leaf {frontier.size} of {head.size} in epoch {head.epoch}"
            )
        for entry in entries:
            yield entry, frontier.append(checked_leaf(entry, frontier.size))
    check_head(frontier, head)


def check_head(frontier: Frontier, head: LogHead) -> None:
    """Raises VerificationFailed where the leaves so far aren't those that `head` anchors."""
    if (frontier.size, frontier.root) != (head.size, head.root):
        raise VerificationFailed(
            f"the log isn't the one that epoch {head.epoch} anchors",
            f"{frontier.size} leaves under {frontier.root}, on chain {head.size} under {head.root}",
            "the coordinator has rewritten history: keep both and challenge it",
        )
