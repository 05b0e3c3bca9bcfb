"""Migrations lead to exactly the tables that the models describe, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import func, inspect, select
from sqlalchemy.orm import Session

from coordinator.db import Base
from coordinator.db.engine import open_engine, usable_database
from coordinator.db.log import LogNode
from coordinator.db.migrate import MIGRATIONS, migrate
from coordinator.log_nodes import LogNodes
from protocol.errors import ProofpoolError
from protocol.merkle.history import Frontier, leaf_hash, root_of


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


def test_a_log_whose_whole_tree_is_stored_keeps_its_root(tmp_path: Path) -> None:
    engine, frontier = open_engine(f"sqlite:///{tmp_path / 'old.sqlite'}"), Frontier()
    leaves = [leaf_hash(bytes([number])) for number in range(100)]
    nodes = [tuple(node) for leaf in leaves for node in frontier.append(leaf)]
    with engine.connect() as connection:
        command.upgrade(migrations(connection), "0008")
        events = [(index, "test.event", "0x", 7, b"{}", leaf) for index, leaf in enumerate(leaves)]
        connection.exec_driver_sql("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)", events)
        connection.exec_driver_sql("INSERT INTO log_node VALUES (?, ?, ?)", nodes)
        connection.commit()
    migrate(engine)
    with Session(engine) as session:
        assert root_of(LogNodes(session), 100) == frontier.root
        assert session.scalar(select(func.count()).select_from(LogNode)) == 6
    with engine.connect() as connection:
        command.downgrade(migrations(connection), "0008")
        assert sorted(connection.exec_driver_sql("SELECT * FROM log_node").all()) == sorted(nodes)
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
