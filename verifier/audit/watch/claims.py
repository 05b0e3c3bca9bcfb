"""What a log says of the chain, held against the chain itself: the Court's cases, and blocks that were dropped.

In: events of the checked log, in order; a node of the chain. Out: faults. Kept until the chain was asked: copies of
events that an auditor is told of (`alerts.CASES`), and claims that the chain dropped blocks, which void copies and let
the log's time go back.

    copy of a case    the chain has that event in that block
    reorg             blocks that the log calls dropped, and doesn't copy again, aren't on the chain any more;
                      what comes after isn't older than the last block that is left
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from protocol.api import LogEntry
from protocol.canonical import canonical_json
from protocol.chain.block import Block
from protocol.chain.pool import LogHead
from protocol.errors import VerificationFailed
from protocol.events import REORGED, LogEvent
from verifier.audit.step import StillOpen
from verifier.audit.watch.alerts import CASES

SCHEMA = """
CREATE TABLE IF NOT EXISTS copied_block (
    block INTEGER, block_hash TEXT, log_index INTEGER NOT NULL, PRIMARY KEY (block, block_hash)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claimed_case (
    log_index INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, document TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS claimed_reorg (
    log_index INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, fork_block INTEGER NOT NULL,
    next_time INTEGER, is_done INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS claimed_reorg_waits ON claimed_reorg (log_index) WHERE next_time IS NULL;
CREATE INDEX IF NOT EXISTS copied_block_place ON copied_block (log_index, block);
"""
MAX_AT_ONCE = 200
"""Of each kind in a look, drawn by lot: who logs a million that stay open keeps nobody from looking at the rest."""


class ChainEvents(Protocol):
    """A node of the chain: `verifier/audit/log/copies.py`."""

    def block(self, number: int) -> Block | None:
        """None where the node doesn't have it yet."""
        ...

    def check(self, copy: LogEvent) -> None:
        """Raises VerificationFailed for a copy of nothing, StillOpen where the node isn't as far."""
        ...


@dataclass(frozen=True)
class FalseClaim:
    """A leaf that says of the chain what isn't so."""

    kind: str
    epoch: int
    log_index: int
    detail: str


class Claims:
    """The tables. `open_chain` gives a fresh look at the chain: blocks may have changed since the last."""

    def __init__(self, db: sqlite3.Connection, open_chain: Callable[[], ChainEvents]) -> None:
        self._db = db
        self._open_chain = open_chain
        db.executescript(SCHEMA)

    def observe(self, entry: LogEntry, head: LogHead) -> None:
        """Take in one event of an epoch that is being checked."""
        try:
            event = LogEvent.of(entry.event)
        except VerificationFailed:
            return  # `alerts.py` tells of it
        if event.type == REORGED:
            fork = event.number("fork_block")
            row = (event.index, head.epoch, -1 if fork is None else fork)
            self._db.execute("INSERT INTO claimed_reorg (log_index, epoch, fork_block) VALUES (?, ?, ?)", row)
            return
        self._db.execute("UPDATE claimed_reorg SET next_time = ? WHERE next_time IS NULL", (event.time,))
        if event.is_chain_copy:
            self._note_copy(event, head)

    def false_ones(self) -> Iterator[FalseClaim]:
        """What the chain contradicts, each as long as it is open. Raises Unreachable."""
        cases = self._db.execute(
            "SELECT log_index, epoch, document FROM claimed_case ORDER BY RANDOM() LIMIT ?", (MAX_AT_ONCE,)
        ).fetchall()
        # A later reorg may have gone deeper: then the last block that was left isn't there any more.
        reorgs = self._db.execute(
            "SELECT log_index, epoch, next_time, (SELECT MIN(later.fork_block) FROM claimed_reorg later "
            "WHERE later.log_index >= one.log_index) FROM "
            "(SELECT * FROM claimed_reorg WHERE NOT is_done ORDER BY RANDOM() LIMIT ?) one ORDER BY log_index",
            (MAX_AT_ONCE,),
        ).fetchall()
        chain = self._open_chain() if cases or reorgs else None
        if chain is None:
            return
        for log_index, epoch, document in cases:
            copy = LogEvent.of(json.loads(document))
            try:
                self._check_case(chain, copy)
            except StillOpen:
                continue
            except VerificationFailed as fault:
                yield FalseClaim("copy", epoch, log_index, f"{copy.type} isn't on chain as the log has it: {fault}")
            # After it was taken: a crash in between tells of it once more.
            self._db.execute("DELETE FROM claimed_case WHERE log_index = ?", (log_index,))
        for log_index, epoch, next_time, fork_block in reorgs:
            for kind, why in self._reorg_faults(chain, log_index, fork_block, next_time):
                yield FalseClaim(kind, epoch, log_index, why)

    def _note_copy(self, event: LogEvent, head: LogHead) -> None:
        if event.block is not None and isinstance(block_hash := event.data.get("block_hash"), str):
            self._db.execute(
                "INSERT OR REPLACE INTO copied_block VALUES (?, ?, ?)", (event.block, block_hash, event.index)
            )
        if event.type.removeprefix("chain.") in CASES:
            row = (event.index, head.epoch, canonical_json(event.model_dump()).decode())
            self._db.execute("INSERT INTO claimed_case VALUES (?, ?, ?)", row)

    def _check_case(self, chain: ChainEvents, copy: LogEvent) -> None:
        if not self._is_void(copy):
            chain.check(copy)

    def _is_void(self, copy: LogEvent) -> bool:
        """A later leaf says that its block was dropped, which is held against the chain by itself."""
        voids = "SELECT 1 FROM claimed_reorg WHERE log_index > ? AND fork_block < ?"
        return self._db.execute(voids, (copy.index, copy.block or 0)).fetchone() is not None

    def _reorg_faults(
        self, chain: ChainEvents, log_index: int, fork_block: int, next_time: int | None
    ) -> Iterator[tuple[str, str]]:
        (newest,) = self._db.execute("SELECT MAX(block) FROM copied_block WHERE log_index > ?", (log_index,)).fetchone()
        if newest is None or next_time is None:
            return  # nothing is copied since: the coordinator may still be reading the blocks again
        left = chain.block(max(fork_block, 0))
        if left is None or chain.block(newest) is None:
            return
        if next_time < left.timestamp:
            yield (
                "back_dated",
                f"at {next_time}, after a reorg that left block {left.number}, which was made at {left.timestamp}",
            )
        dropped = "SELECT block, block_hash FROM copied_block WHERE block > ? AND block < ? AND log_index < ?"
        for number, block_hash in self._db.execute(dropped, (fork_block, newest, log_index)).fetchall():
            there = chain.block(number)
            if there is not None and there.block_hash == block_hash:
                yield "reorg", f"the log says that the chain has dropped block {number}, which it has: {block_hash}"
                break
        (last,) = self._db.execute(
            "SELECT COALESCE(MAX(block), -1) FROM copied_block WHERE log_index < ?", (log_index,)
        ).fetchone()
        if newest > last:
            self._db.execute("UPDATE claimed_reorg SET is_done = 1 WHERE log_index = ?", (log_index,))
