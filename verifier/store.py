"""The verifier's memory: one SQLite file in its data folder, durable at each commit, safe to kill at any point.

In: a folder. Out: a connection; who keeps what in it is in `verdicts.py`, `commitments.py`, `history.py` and
`accuse.py`, each with its own tables.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

FILE_NAME = "verifier.sqlite3"


def open_store(folder: Path) -> sqlite3.Connection:
    """The store in `folder`, made where there is none. A commit is on the disk before it returns."""
    folder.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(folder / FILE_NAME, timeout=30, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA foreign_keys=ON")
    return db


class transaction:
    """`with transaction(db):` all of it or nothing; `isolation_level=None` leaves begin and end to us."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._db.execute("ROLLBACK" if kind else "COMMIT")
