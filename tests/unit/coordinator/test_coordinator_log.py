"""The log: one leaf a change, never another one in its place, and a tree that proves it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from coordinator import log
from coordinator.db.engine import WRITES, open_engine
from coordinator.db.log import Event, LogNode
from coordinator.log_nodes import LogNodes
from protocol.canonical import canonical_json, sha256
from protocol.errors import ProofpoolError
from protocol.merkle.history import (
    MemoryLog,
    NodeAddress,
    consistency_proof,
    inclusion_proof,
    root_of,
    verify_consistency,
)

SUBJECT = "0x" + "ab" * 32


def leaf_hashes(session: Session) -> list[str]:
    return list(session.scalars(select(Event.leaf_hash).order_by(Event.index)))


@pytest.fixture(scope="module")
def grown_log(tmp_path_factory: pytest.TempPathFactory, empty_database: bytes) -> Iterator[Session]:
    """700 leaves: three levels of stored nodes would begin at 4,096."""
    file = tmp_path_factory.mktemp("grown") / "log.sqlite"
    file.write_bytes(empty_database)
    engine = open_engine(f"sqlite:///{file}")
    with Session(engine.execution_options(**WRITES)) as session:
        log.append_all(session, (log.Change("test.event", SUBJECT, n, {"n": n}) for n in range(700)))
        yield session
    engine.dispose()


def test_events_are_canonical_documents_and_leaves_of_the_tree(site: Any) -> None:
    for size in range(1, 12):
        with site.coordinator.writing() as session:
            for _ in range(size % 3 + 1):
                log.append(session, "test.event", SUBJECT, 7, {"size": size, "amount_wei": "12"})
    with site.coordinator.reading() as session:
        rows = session.scalars(select(Event).order_by(Event.index)).all()
        nodes = LogNodes(session)
        assert [row.index for row in rows] == list(range(log.log_size(session)))
        assert root_of(nodes, len(rows)) == MemoryLog(row.leaf_hash for row in rows).root
        document = json.loads(rows[0].document)
        assert canonical_json(document) == rows[0].document
        assert document["type"] == "test.event"
        assert inclusion_proof(nodes, 3, len(rows))
        proof = consistency_proof(nodes, 5, len(rows))
        assert verify_consistency(5, len(rows), root_of(nodes, 5), root_of(nodes, len(rows)), proof)
        assert len(sha256(rows[0].document)) == 32


def test_an_undone_transaction_leaves_no_leaf(site: Any) -> None:
    before = site.dump()
    with pytest.raises(RuntimeError), site.coordinator.writing() as session:
        log.append(session, "test.event", SUBJECT, 7, {})
        raise RuntimeError
    assert site.dump() == before


def test_a_hole_in_the_tree_is_an_error(site: Any) -> None:
    def grow() -> None:
        with site.coordinator.writing() as session:
            log.append_all(session, [log.Change("test.event", SUBJECT, 7, {})] * 19)

    def root() -> str:
        with site.coordinator.reading() as session:
            return root_of(LogNodes(session), 19)

    def lose(table: type[Event | LogNode], key: Any) -> None:
        with site.coordinator.writing() as session:
            session.delete(session.get_one(table, key))

    grow()
    assert root()
    lose(Event, 18)
    with pytest.raises(ProofpoolError, match=r"hole.*level=0, position=18"):
        root()
    lose(LogNode, (4, 0))
    for ask in (root, grow):
        with pytest.raises(ProofpoolError, match=r"hole.*level=4, position=0"):
            ask()


@given(size=st.integers(1, 700), data=st.data())
def test_whatever_is_stored_or_computed_is_the_tree_of_the_rfc(grown_log: Session, size: int, data: Any) -> None:
    nodes, memory = LogNodes(grown_log), MemoryLog(leaf_hashes(grown_log)[:size])
    old = data.draw(st.integers(1, size))
    assert root_of(nodes, size) == memory.root == log.Frontier.load(nodes, size).root
    assert inclusion_proof(nodes, old - 1, size) == inclusion_proof(memory, old - 1, size)
    assert consistency_proof(nodes, old, size) == consistency_proof(memory, old, size)
    level = data.draw(st.integers(0, size.bit_length() - 1))
    address = NodeAddress(level, data.draw(st.integers(0, (size >> level) - 1)))
    assert nodes.read([address]) == memory.read([address])


def test_the_tree_takes_a_row_for_sixteen_leaves(grown_log: Session) -> None:
    addresses = grown_log.execute(select(LogNode.level, LogNode.position)).all()
    assert sorted(addresses) == [(4, n) for n in range(700 // 16)] + [(8, n) for n in range(700 // 256)]


def test_a_leaf_belongs_to_the_epoch_that_was_open(site: Any) -> None:
    site.lease()
    first = site.close_epoch()
    with site.coordinator.writing() as session:
        index = log.append(session, "test.event", SUBJECT, 7, {})
        assert log.open_epoch(session) == first + 1
        assert log.epoch_of_leaf(session, 0).epoch == first
        assert log.epoch_of_leaf(session, index) is None
    site.close_epoch()
    with site.coordinator.reading() as session:
        assert log.epoch_of_leaf(session, index).epoch == first + 1


def test_proofs_look_nodes_up_and_dont_walk_over_the_table(site: Any) -> None:
    """At a million leaves a walk takes half a second."""
    asked: list[tuple[str, Any]] = []
    with site.coordinator.writing() as session:
        log.append_all(session, [log.Change("test.event", SUBJECT, 7, {})] * 100)
        connection = session.connection()

        def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            asked.append((statement, parameters))

        event.listen(connection, "before_cursor_execute", note)
        nodes = LogNodes(session)
        assert inclusion_proof(nodes, 33, 100) and consistency_proof(nodes, 33, 100) and log.Frontier.load(nodes, 100)
        assert len(asked) == 6, "leaves and nodes, each time"
        for statement, parameters in list(asked):
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            assert plan and not [step for step in plan if step[-1].startswith("SCAN")]


def test_leaves_in_bulk_are_the_rows_that_one_by_one_gives(site: Any) -> None:
    changes = [log.Change("test.event", SUBJECT, 7, {"number": number, "é": None}) for number in range(40)]

    def rows(write: Callable[[Session], None]) -> list[tuple[Any, ...]]:
        """What a transaction leaves, and undoes: the log's rows."""
        found: list[tuple[Any, ...]] = []
        with pytest.raises(KeyError), site.coordinator.writing() as session:
            write(session)
            events = session.scalars(select(Event).order_by(Event.index))
            found += [(row.index, row.type, row.subject, row.time, row.document, row.leaf_hash) for row in events]
            nodes = session.scalars(select(LogNode).order_by(LogNode.level, LogNode.position))
            found += [(row.level, row.position, row.node_hash) for row in nodes]
            raise KeyError
        return found

    def one_by_one(session: Session) -> None:
        for change in changes:
            log.append(session, *change)

    def by_turns(session: Session) -> None:
        log.append(session, *changes[0])
        log.append_all(session, changes[1:30])
        log.append(session, *changes[30])
        log.append_all(session, iter(changes[31:]))
        log.append_all(session, [])

    assert rows(one_by_one) == rows(by_turns) == rows(lambda session: log.append_all(session, changes))


def test_more_leaves_than_one_insert_takes(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "ROWS_PER_INSERT", 3)
    with site.coordinator.writing() as session:
        before = log.log_size(session)
        log.append_all(session, (log.Change("test.event", SUBJECT, 7, {}) for _ in range(7)))
    with site.coordinator.reading() as session:
        leaves = session.scalars(select(Event.leaf_hash).order_by(Event.index)).all()
        assert len(leaves) == before + 7 and root_of(LogNodes(session), len(leaves)) == MemoryLog(leaves).root
