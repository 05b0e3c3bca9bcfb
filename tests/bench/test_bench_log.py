"""A log of a million leaves in the coordinator's database: what a leaf costs, and what its proofs take.

In: leaves as a pool makes them, six of a submission in a row, written by `coordinator/log.py` into SQLite. Out: on
stdout, microseconds a leaf by the hundred thousand, and milliseconds a proof. Some two minutes, and 1 GiB of disk.

python -m pytest -m bench -s tests/bench/test_bench_log.py
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from coordinator.audit import consistency, inclusion
from coordinator.db.chain import Epoch
from coordinator.db.engine import WRITES, open_engine
from coordinator.db.log import Event
from coordinator.log import Change, append_all, log_size
from coordinator.log_nodes import LogNodes
from protocol.api import ConsistencyProof, InclusionProof
from protocol.canonical import from_hex0x, hex0x, sha256
from protocol.merkle.history import Frontier, root_of, verify_consistency, verify_inclusion
from tests.unit.coordinator.conftest import empty_database

__all__ = ["empty_database"]

MILLION = 10**6
LEAVES_OF_A_SUBMISSION, LEAVES_OF_AN_EPOCH = 6, 256
MAX_MICROSECONDS_A_LEAF, MAX_MILLISECONDS_A_PROOF = 50, 10
"""Of processor time: what disk and waiting take besides depends on who else uses the machine."""
NUM_PROOFS = 300
NODE, ACCOUNT = "0x" + "ab" * 20, "0x" + "cd" * 20


class GrowingLog:
    """A database with a log in it, and epochs as the chain would have them."""

    def __init__(self, file: Path, database: bytes) -> None:
        file.write_bytes(database)
        self.engine: Engine = open_engine(f"sqlite:///{file}")

    def grow(self, num_leaves: int) -> None:
        """So many more leaves, in one transaction."""
        with Session(self.engine.execution_options(**WRITES)) as session, session.begin():
            start = log_size(session)
            append_all(session, (leaf(index) for index in range(start, start + num_leaves)))

    def close_epochs(self, num_leaves: int) -> int:
        """As if one had been closed after each so many leaves, and the last one where the log ends; how many."""
        with Session(self.engine.execution_options(**WRITES)) as session, session.begin():
            nodes, end = LogNodes(session), log_size(session)
            sizes = [*range(num_leaves, end, num_leaves), end]
            session.add_all(
                Epoch(epoch=n, size=size, root=root_of(nodes, size), block=1) for n, size in enumerate(sizes)
            )
        return len(sizes)

    def reading(self) -> Session:
        return Session(self.engine)


def leaf(index: int) -> Change:
    subject = hex0x(sha256((index // LEAVES_OF_A_SUBMISSION).to_bytes(8, "big")))
    data = {"task_id": subject, "node": NODE, "provider": ACCOUNT, "counter": index, "amount_wei": str(10**18 + index)}
    return Change("submission.received", subject, 1_800_000_000 + index, dict(data))


@pytest.fixture
def growing(tmp_path: Path, empty_database: bytes) -> Iterator[GrowingLog]:
    made = GrowingLog(tmp_path / "log.sqlite", empty_database)
    yield made
    made.engine.dispose()
    for file in tmp_path.glob("log.sqlite*"):
        file.unlink()


def naive_root(leaves: list[bytes]) -> bytes:
    """MTH of RFC 9162, section 2.1.1, as it is written there."""
    if len(leaves) == 1:
        return leaves[0]
    k = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + naive_root(leaves[:k]) + naive_root(leaves[k:])).digest()


def inclusion_of(session: Session, index: int) -> bool:
    found: InclusionProof = inclusion(session, index)
    return verify_inclusion(found.leaf_hash, found.index, found.size, found.path, found.root)


def consistency_of(session: Session, old: int, new: int) -> bool:
    found: ConsistencyProof = consistency(session, old, new)
    return verify_consistency(found.old_size, found.new_size, found.old_root, found.new_root, found.path)


def test_a_hundred_thousand_leaves_are_the_tree_of_the_rfc(growing: GrowingLog) -> None:
    for _ in range(5):
        growing.grow(20_000)
    num_epochs = growing.close_epochs(20_000)
    with growing.reading() as session:
        leaves = [from_hex0x(one) for one in session.scalars(select(Event.leaf_hash).order_by(Event.index))]
        nodes = LogNodes(session)
        for size in (1, 2, 65_535, 65_536, 65_537, 99_999, 10**5):
            assert root_of(nodes, size) == hex0x(naive_root(leaves[:size]))
        assert Frontier.load(nodes, 10**5).root == root_of(nodes, 10**5)
        for index in (0, 1, 19_999, 20_000, 65_535, 65_536, 99_999):
            assert inclusion_of(session, index)
            proof = inclusion(session, index)
            assert not verify_inclusion(proof.leaf_hash, index ^ 1, proof.size, proof.path, proof.root)
        assert all(consistency_of(session, old, new) for new in range(num_epochs) for old in range(new + 1))


def milliseconds(log: GrowingLog, ask: Callable[[Session], bool]) -> tuple[float, float]:
    """Of one answer in a session of its own, as a request has it: of processor time, and in all."""
    wall, cpu = time.perf_counter(), time.process_time()
    with log.reading() as session:
        holds = ask(session)
    took = 1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - wall)
    assert holds
    return took


def printed(name: str, answers: list[tuple[float, float]]) -> float:
    """A line of figures; the 99 % of processor time."""
    (cpu, cpu_most), (wall, wall_most) = (
        (times[len(times) // 2], times[len(times) * 99 // 100]) for times in map(sorted, zip(*answers, strict=True))
    )
    print(
        f"{name:>12}: median {cpu:.2f} ms of processor, 99 % {cpu_most:.2f}; in all {wall:.2f} and {wall_most:.2f} ms"
    )
    return cpu_most


@pytest.mark.bench
@pytest.mark.timeout(1800)
def test_a_million_leaves(growing: GrowingLog) -> None:
    step = MILLION // 10
    print()
    spent = 0.0
    for number in range(1, 11):
        wall, cpu = time.perf_counter(), time.process_time()
        growing.grow(step)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        spent += cpu
        each = f"{1e6 * cpu / step:5.1f} µs of processor each, {1e6 * wall / step:5.1f} with the disk"
        print(f"{number * step:>9} leaves: {each}")
    print(f"          on average {1e6 * spent / MILLION:5.1f} µs of processor a leaf")
    chance = random.Random(7)
    num_epochs = growing.close_epochs(LEAVES_OF_AN_EPOCH)
    indexes = [chance.randrange(MILLION) for _ in range(NUM_PROOFS)]
    epochs = [sorted(chance.sample(range(num_epochs), 2)) for _ in range(NUM_PROOFS)]
    included = [milliseconds(growing, partial(inclusion_of, index=index)) for index in indexes]
    grown = [milliseconds(growing, partial(consistency_of, old=old, new=new)) for old, new in epochs]
    assert printed("inclusion", included) < MAX_MILLISECONDS_A_PROOF
    assert printed("consistency", grown) < MAX_MILLISECONDS_A_PROOF
    assert 1e6 * spent / MILLION <= MAX_MICROSECONDS_A_LEAF
