"""The log: one leaf a change, never another one in its place, and a tree that proves it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import select

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
