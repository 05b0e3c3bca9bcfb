"""Completions that this verifier has read, by their digest: what different nodes have in common.

In: judged cases. Out: for each node, how many of its completions another node has handed in as well. This is a report
and never a refusal: seeds catch real copies, and answers coincide. Short ones, of fewer than 16 tokens, aren't kept.
"""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from protocol.checks.case import Case
from protocol.rollouts import Rollout
from verifier.store import FILE_NAME, open_store, transaction

MIN_TOKENS = 16
DIGEST_BYTES = 16

SCHEMA = """
CREATE TABLE IF NOT EXISTS completion (
    node TEXT NOT NULL, digest BLOB NOT NULL, submission_id TEXT NOT NULL,
    PRIMARY KEY (node, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS completion_digest ON completion (digest, node);
"""

OVERLAP = """
SELECT mine.node, other.node, COUNT(*),
    MIN(mine.submission_id), (SELECT COUNT(*) FROM completion WHERE node = mine.node)
FROM completion mine JOIN completion other ON mine.digest = other.digest AND mine.node <> other.node
GROUP BY mine.node, other.node ORDER BY COUNT(*) DESC, mine.node, other.node
"""


class Overlap(BaseModel):
    """Of a node's different completions of at least 16 tokens, how many another one has handed in too.

    `submission_id`: one of the node's that holds such a completion.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    node: str
    other_node: str
    num_shared: int
    num_completions: int
    submission_id: str

    @property
    def share(self) -> float:
        return self.num_shared / self.num_completions


class OverlapReport(BaseModel):
    """What `proofpool verifier overlap --json` prints; pairs with nothing in common aren't listed."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: int = 1
    num_nodes: int
    num_completions: int
    overlaps: tuple[Overlap, ...]


class Completions:
    """The table of completions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        db.executescript(SCHEMA)

    def keep(self, node: str, submission_id: str, case: Case) -> None:
        """Remember the completions of a file; a submission that is judged again changes nothing."""
        rows = [(node, digest_of(r), submission_id) for r in case.rollouts if r.num_units >= MIN_TOKENS]
        with transaction(self._db):
            self._db.executemany("INSERT OR IGNORE INTO completion VALUES (?, ?, ?)", rows)

    def report(self) -> OverlapReport:
        """All pairs of nodes that share completions, those that share most in front."""
        num_nodes, num_completions = self._db.execute(
            "SELECT COUNT(DISTINCT node), COUNT(DISTINCT digest) FROM completion"
        ).fetchone()
        overlaps = tuple(
            Overlap(node=node, other_node=other, num_shared=shared, num_completions=total, submission_id=submission_id)
            for node, other, shared, submission_id, total in self._db.execute(OVERLAP)
        )
        return OverlapReport(num_nodes=num_nodes, num_completions=num_completions, overlaps=overlaps)


def digest_of(rollout: Rollout) -> bytes:
    """The first 16 bytes of SHA-256 over the output tokens: whatever was asked, and whoever answered."""
    return hashlib.sha256(rollout.output_tokens.astype("<i4").tobytes()).digest()[:DIGEST_BYTES]


def read_overlap(data_dir: Path) -> OverlapReport:
    """The report of a verifier's folder, whether or not it is running; one that hasn't run has read nothing."""
    if not (data_dir / FILE_NAME).exists():
        return OverlapReport(num_nodes=0, num_completions=0, overlaps=())
    db = open_store(data_dir)
    try:
        return Completions(db).report()
    finally:
        db.close()
