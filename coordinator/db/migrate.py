"""Bring a database to the current schema: `proofpool coordinator migrate`, and every start.

In: an engine. Out: the tables of `coordinator/db/`, by the numbered steps in `coordinator/migrations/versions/`.
A new step: `python -m coordinator.db.migrate "what changes"`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine

from coordinator.db.engine import open_engine

MIGRATIONS = Path(__file__).resolve().parents[1] / "migrations"


def migrate(engine: Engine) -> None:
    """Apply the steps that this database doesn't have yet."""
    with engine.connect() as connection:
        command.upgrade(_config(connection), "head")


def write_step(title: str) -> None:
    """Write a migration from the difference between the models and the steps so far."""
    with tempfile.TemporaryDirectory() as folder:
        engine = open_engine(f"sqlite:///{folder}/scratch.sqlite")
        migrate(engine)
        with engine.connect() as connection:
            number = 1 + len(list((MIGRATIONS / "versions").glob("[0-9]*.py")))
            command.revision(_config(connection), title, autogenerate=True, rev_id=f"{number:04d}")
        engine.dispose()


def _config(connection: object) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


if __name__ == "__main__":
    write_step(sys.argv[1])
