"""Migrations lead to exactly the tables that the models describe, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from coordinator.db import Base
from coordinator.db.engine import open_engine, usable_database
from coordinator.db.migrate import MIGRATIONS, migrate
from protocol.errors import ProofpoolError


def test_migrated_tables_are_the_models_tables(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'new.sqlite'}")
    migrate(engine)
    migrate(engine)  # a second time there is nothing to do
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
        assert set(inspect(connection).get_table_names()) == {*Base.metadata.tables, "alembic_version"}
    engine.dispose()


def test_a_pool_that_is_indexed_already_gets_its_rate_of_re_audits(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'old.sqlite'}")
    with engine.connect() as connection:
        command.upgrade(migrations(connection), "0001")
        connection.exec_driver_sql(
            "INSERT INTO chain_event VALUES (1, 5, 0, 9, 'tx', 'pools', 'PoolCreated', 'id', ?)",
            (json.dumps({"pool_id": 3, "config": {"reaudit_bps": 700}}),),
        )
        amounts = ", ".join(["'1'"] * 4)
        connection.exec_driver_sql(
            f"INSERT INTO pool VALUES (3, 'c', 't', 'r', 'm', {amounts}, 2, 1, 2, 8, 1, 60, 0, 0)"
        )
        connection.commit()
    migrate(engine)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT pool_id, reaudit_bps FROM pool").all() == [(3, 700)]
        command.downgrade(migrations(connection), "0001")
        assert "reaudit" not in inspect(connection).get_table_names()
    engine.dispose()


def migrations(connection: object) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def test_writers_wait_for_each_other_and_readers_for_nobody(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'new.sqlite'}")
    migrate(engine)
    writing = engine.execution_options(begin="BEGIN IMMEDIATE")
    with writing.begin() as writer, engine.connect() as reader:
        writer.exec_driver_sql("INSERT INTO seen_nonce VALUES ('0x1', 'n', 1)")
        assert reader.exec_driver_sql("SELECT count(*) FROM seen_nonce").scalar_one() == 0
        assert reader.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
        assert reader.exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 1
    engine.dispose()


@pytest.mark.parametrize("content", [b"no database at all" * 300, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_database_is_an_error_that_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "damaged.sqlite").write_bytes(content)
    engine = open_engine(f"sqlite:///{tmp_path / 'damaged.sqlite'}")
    with pytest.raises(ProofpoolError, match="can't be used") as found, usable_database():
        migrate(engine)
    assert "backup" in found.value.todo
    engine.dispose()
