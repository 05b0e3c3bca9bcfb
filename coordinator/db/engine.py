"""The database connection: SQLite in WAL mode by default, one writer at a time.

In: a SQLAlchemy URL. Out: an engine whose reading transactions see one snapshot and whose writing
transactions (`WRITES`) take the write lock at once, so that two of them never work on the same old state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError

from protocol.errors import ProofpoolError

BUSY_TIMEOUT_MILLISECONDS = 10_000
WRITES = {"begin": "BEGIN IMMEDIATE"}
"""Execution options of a writing transaction."""

_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MILLISECONDS}",
)


def open_engine(url: str) -> Engine:
    """An engine on `url`; nothing is created but the file."""
    if not url.startswith("sqlite"):
        return create_engine(url, isolation_level="SERIALIZABLE")
    engine = create_engine(url, pool_size=8, max_overflow=40)
    event.listen(engine, "connect", _prepare_connection)
    event.listen(engine, "begin", _begin)
    return engine


@contextmanager
def usable_database() -> Iterator[None]:
    """Raises ProofpoolError where the database is damaged or full: what a start can't mend, and a person can."""
    try:
        yield
    except DatabaseError as error:
        todo = "restore it from a backup, or make room: docs/operations.md says how"
        raise ProofpoolError("the database can't be used", str(error.orig), todo) from error


def _prepare_connection(connection: Any, _record: Any) -> None:
    # The driver's own BEGIN would come too late and always be DEFERRED: `_begin` says it instead.
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(pragma)


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
