"""The database connection: SQLite in WAL mode by default, one writer at a time.

In: a SQLAlchemy URL. Out: an engine whose reading transactions see one snapshot and whose writing
transactions (`WRITES`) take the write lock at once, so that two of them never work on the same old state.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event

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


def _prepare_connection(connection: Any, _record: Any) -> None:
    # The driver's own BEGIN would come too late and always be DEFERRED: `_begin` says it instead.
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(pragma)


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
