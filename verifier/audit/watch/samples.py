"""Which settled submissions a watching auditor judges again himself, by a draw that nobody else knows.

In: events of the checked log, the share that is wanted. Out: submission ids to replay, each once, kept until that is
done. The draw hangs on a secret in the auditor's own memory: who is judged again can't be guessed from outside, nor
changed by looking twice.
"""

from __future__ import annotations

import secrets
import sqlite3

from protocol.api import LogEntry
from protocol.canonical import from_hex0x, keccak256
from protocol.chain.pool import LogHead
from verifier.payments import SETTLING

SCHEMA = """
CREATE TABLE IF NOT EXISTS sample (
    submission_id TEXT PRIMARY KEY, num_tries INTEGER NOT NULL DEFAULT 0, is_done INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sample_secret (id INTEGER PRIMARY KEY CHECK (id = 1), secret BLOB NOT NULL) STRICT;
"""
MAX_TRIES = 3
_RANGE = 1 << 64


class Samples:
    """The table. `share`: of settled submissions, 0 to 1."""

    def __init__(self, db: sqlite3.Connection, share: float) -> None:
        self._db = db
        self._share = share
        db.executescript(SCHEMA)
        db.execute("INSERT OR IGNORE INTO sample_secret VALUES (1, ?)", (secrets.token_bytes(32),))
        (self._secret,) = db.execute("SELECT secret FROM sample_secret").fetchone()

    def observe(self, entry: LogEntry, head: LogHead) -> None:
        """Take in one event of an epoch that is being checked."""
        if str(entry.event.get("type")) in SETTLING and self.is_picked(entry.subject):
            self._db.execute("INSERT OR IGNORE INTO sample (submission_id) VALUES (?)", (entry.subject,))

    def is_picked(self, submission_id: str) -> bool:
        drawn = int.from_bytes(keccak256(self._secret + from_hex0x(submission_id))[:8], "big")
        return drawn < self._share * _RANGE

    def waiting(self) -> list[str]:
        """Ids that aren't judged yet, those that were tried least first."""
        rows = self._db.execute("SELECT submission_id FROM sample WHERE NOT is_done ORDER BY num_tries, submission_id")
        return [submission_id for (submission_id,) in rows]

    def mark_done(self, submission_id: str) -> None:
        self._db.execute("UPDATE sample SET is_done = 1 WHERE submission_id = ?", (submission_id,))

    def note_failure(self, submission_id: str) -> bool:
        """It couldn't be judged. Whether that was the last try."""
        self._db.execute(
            "UPDATE sample SET num_tries = num_tries + 1, is_done = (num_tries + 1 >= ?) WHERE submission_id = ?",
            (MAX_TRIES, submission_id),
        )
        row = self._db.execute("SELECT is_done FROM sample WHERE submission_id = ?", (submission_id,)).fetchone()
        return bool(row[0])

    def num_done(self) -> int:
        return int(self._db.execute("SELECT COUNT(*) FROM sample WHERE is_done").fetchone()[0])
