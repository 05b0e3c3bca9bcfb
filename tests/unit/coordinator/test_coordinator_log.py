"""The log: one leaf a change, never another one in its place, and a tree that proves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from coordinator import log
from coordinator.db.log import Event, LogNode
from protocol.canonical import canonical_json, sha256
from protocol.errors import ProofpoolError
from protocol.merkle.history import MemoryLog, consistency_proof, inclusion_proof, root_of, verify_consistency

SUBJECT = "0x" + "ab" * 32


def test_events_are_canonical_documents_and_leaves_of_the_tree(site: Any) -> None:
    for size in range(1, 12):
        with site.coordinator.writing() as session:
            for _ in range(size % 3 + 1):
                log.append(session, "test.event", SUBJECT, 7, {"size": size, "amount_wei": "12"})
    with site.coordinator.reading() as session:
        rows = session.scalars(select(Event).order_by(Event.index)).all()
        nodes = log.LogNodes(session)
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
    with site.coordinator.writing() as session:
        for _ in range(3):
            log.append(session, "test.event", SUBJECT, 7, {})
    with site.coordinator.writing() as session:
        session.delete(session.get_one(LogNode, (1, 0)))
    with pytest.raises(ProofpoolError, match="hole"), site.coordinator.writing() as session:
        log.append(session, "test.event", SUBJECT, 7, {})


def test_a_leaf_belongs_to_the_epoch_that_was_open(site: Any) -> None:
    site.lease()
    first = site.close_epoch()
    with site.coordinator.writing() as session:
        event = log.append(session, "test.event", SUBJECT, 7, {})
        assert log.open_epoch(session) == first + 1
        assert log.epoch_of_leaf(session, 0).epoch == first
        assert log.epoch_of_leaf(session, event.index) is None
    site.close_epoch()
    with site.coordinator.reading() as session:
        assert log.epoch_of_leaf(session, event.index).epoch == first + 1


def test_proofs_look_nodes_up_and_dont_walk_over_the_table(site: Any) -> None:
    """At a million leaves a walk takes half a second."""
    asked: list[tuple[str, Any]] = []
    with site.coordinator.writing() as session:
        log.append_all(session, [log.Change("test.event", SUBJECT, 7, {})] * 100)
        connection = session.connection()

        def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            asked.append((statement, parameters))

        event.listen(connection, "before_cursor_execute", note)
        nodes = log.LogNodes(session)
        assert inclusion_proof(nodes, 33, 100) and consistency_proof(nodes, 33, 100) and log.Frontier.load(nodes, 100)
        assert len(asked) == 3
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
        assert len(leaves) == before + 7 and root_of(log.LogNodes(session), len(leaves)) == MemoryLog(leaves).root
