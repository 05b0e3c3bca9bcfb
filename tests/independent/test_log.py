"""pymerkle and rekor-verifier on our log: the same roots, every proof of ours verified, and no damaged one."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from coordinator import log
from coordinator.db.log import Event
from coordinator.log_nodes import LogNodes
from protocol.canonical import from_hex0x, sha256
from protocol.merkle import history
from protocol.merkle.history import MemoryLog, NodeReader, consistency_proof, inclusion_proof, root_of

SMALL, LARGE = 70, 3000
HOLDS = {"heads": {True}, "inclusions": {True}, "consistencies": {True}}
SUBJECTS = ["0x" + f"{number:02x}" * 32 for number in range(7)]

pytestmark = pytest.mark.slow


def plain(path: tuple[str, ...]) -> list[str]:
    return [one.removeprefix("0x") for one in path]


class Question:
    """What is asked about a log."""

    def __init__(self, nodes: NodeReader, leaves: list[bytes]) -> None:
        self.nodes = nodes
        self.asked: dict[str, list[Any]] = {"heads": [], "inclusions": [], "consistencies": []}
        self._leaves = [leaf.hex() for leaf in leaves]

    def head(self, size: int) -> None:
        self.asked["heads"].append([size, root_of(self.nodes, size).removeprefix("0x")])

    def inclusion(self, index: int, size: int) -> None:
        self.asked["inclusions"].append([index, size, plain(inclusion_proof(self.nodes, index, size))])

    def consistency(self, old: int, new: int) -> None:
        self.asked["consistencies"].append([old, new, plain(consistency_proof(self.nodes, old, new))])

    def answers(self, python: Path) -> dict[str, set[bool]]:
        """All that was said of heads, of inclusion and of consistency."""
        script = Path(__file__).with_name("check_log.py")
        asked = json.dumps({"leaves": self._leaves, **self.asked})
        done = subprocess.run([python, "-I", script], input=asked, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert {name: len(some) for name, some in found.items()} == {n: len(some) for n, some in self.asked.items()}
        proofs = {name: {said for one in found[name] for said in one} for name in ("inclusions", "consistencies")}
        return {"heads": set(found["heads"]), **proofs}


@pytest.fixture(scope="module")
def small() -> tuple[MemoryLog, list[bytes]]:
    leaves = [bytes([number]) * (number % 5) for number in range(SMALL)]
    return MemoryLog(map(history.leaf_hash, leaves)), leaves


def test_every_proof_of_a_small_log(small: tuple[MemoryLog, list[bytes]], other_python: Path) -> None:
    question = Question(*small)
    for size in range(1, SMALL + 1):
        question.head(size)
        for other in range(size):
            question.inclusion(other, size)
            question.consistency(other + 1, size)
    assert question.answers(other_python) == HOLDS


def test_no_damaged_proof(small: tuple[MemoryLog, list[bytes]], other_python: Path) -> None:
    question, chance = Question(*small), random.Random(3)
    for size in range(3, SMALL + 1):
        question.inclusion(chance.randrange(size), size)
        question.consistency(chance.randrange(1, size), size)
    for proofs in (question.asked["inclusions"], question.asked["consistencies"]):
        for number, (_, _, path) in enumerate(proofs):
            damage = number % 3
            if damage == 0:
                path[number % len(path)] = "77" * 32
            elif damage == 1:
                path.pop()
            else:
                path.append("77" * 32)
    answers = question.answers(other_python)
    assert answers["inclusions"] == answers["consistencies"] == {False}


def test_the_coordinators_log(site: Any, other_python: Path) -> None:
    """Leaves as they are written, one by one and in bulk, and proofs from the database."""
    changes = [log.Change("test.event", SUBJECTS[number % 7], number, {"number": number}) for number in range(LARGE)]
    with site.coordinator.writing() as session:
        for change in changes[:50]:
            log.append(session, *change)
        log.append_all(session, changes[50:])
    with site.coordinator.reading() as session:
        rows = session.execute(select(Event.subject, Event.document).order_by(Event.index))
        question = Question(LogNodes(session), [from_hex0x(row.subject) + sha256(row.document) for row in rows])
        size, chance = log.log_size(session), random.Random(4)
        for _ in range(150):
            old, new = sorted((chance.randrange(1, size), chance.randrange(1, size)))
            question.head(new)
            question.consistency(old, new)
            question.inclusion(old - 1, new)
        assert question.answers(other_python) == HOLDS
