"""A leaf is anchored where a head on chain has it, also where the chain has forgotten the head of its own epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocol.api import ConsistencyProof, InclusionProof
from protocol.errors import NotFound, VerificationFailed
from protocol.merkle.history import MemoryLog, consistency_proof, inclusion_proof, root_of
from verifier.audit.log import anchors
from verifier.audit.log.anchors import Anchors
from verifier.audit.step import StillOpen

SIZES = [3, 5, 6, 9]
"""Of the log after each epoch; it has ten leaves."""
OTHER = "0x" + "77" * 32


class Pool:
    """A log, the coordinator that proves it, and the chain that has its heads."""

    def __init__(self) -> None:
        self.log = MemoryLog(f"0x{index + 1:064x}" for index in range(10))
        self.num_indexed = len(SIZES)
        self.changes: dict[str, Any] = {}

    def read(self, contract: str, function: str, pool_id: int, epoch: int = -1) -> Any:
        if function == "epochCount":
            return len(SIZES)
        before = SIZES[epoch - 1] if epoch else 0
        return {"size": SIZES[epoch], "root": root_of(self.log, SIZES[epoch]), "previous_size": before}

    def inclusion(self, index: int) -> InclusionProof:
        epoch = next((n for n, size in enumerate(SIZES[: self.num_indexed]) if size > index), None)
        if epoch is None:
            raise NotFound("this leaf isn't anchored on chain")
        proof = InclusionProof(
            index=index,
            leaf_hash=leaf(index),
            size=SIZES[epoch],
            root=root_of(self.log, SIZES[epoch]),
            epoch=epoch,
            path=inclusion_proof(self.log, index, SIZES[epoch]),
        )
        return proof.model_copy(update=self.changes)

    def consistency(self, old_epoch: int, new_epoch: int) -> ConsistencyProof:
        sizes, path = (SIZES[old_epoch], SIZES[new_epoch]), self.changes.get("link")
        old_root, new_root = (root_of(self.log, size) for size in sizes)
        return ConsistencyProof(
            old_epoch=old_epoch,
            new_epoch=new_epoch,
            old_size=sizes[0],
            new_size=sizes[1],
            old_root=old_root,
            new_root=new_root,
            path=consistency_proof(self.log, *sizes) if path is None else path,
        )


def leaf(index: int) -> str:
    return f"0x{index + 1:064x}"


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def held(pool: Pool) -> Callable[[int], int]:
    """The epoch that anchors a leaf."""
    return lambda index: Anchors(pool, pool, 1).epoch_of(index, leaf(index))  # type: ignore[arg-type]


def test_each_leaf_belongs_to_the_first_epoch_that_holds_it(held: Callable[[int], int]) -> None:
    assert [held(index) for index in range(9)] == [0, 0, 0, 1, 1, 2, 3, 3, 3]


def test_what_no_head_on_chain_holds_is_open(held: Callable[[int], int]) -> None:
    with pytest.raises(StillOpen, match="not anchored yet"):
        held(9)


def test_a_coordinator_may_be_one_epoch_behind_the_chain_and_no_more(pool: Pool, held: Callable[[int], int]) -> None:
    pool.num_indexed = 3
    with pytest.raises(StillOpen, match="just now"):
        held(6)
    pool.num_indexed = 2
    with pytest.raises(VerificationFailed, match="holds back a proof"):
        held(5)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"index": 4}, "another leaf"),
        ({"leaf_hash": OTHER}, "another leaf"),
        ({"path": ()}, "isn't under the root"),
        ({"root": OTHER}, "isn't under the root"),
        ({"epoch": 2}, "isn't the chain's"),
        ({"epoch": 99}, "no epoch 99"),
    ],
)
def test_a_proof_that_says_something_else_is_found(
    pool: Pool, held: Callable[[int], int], changes: dict[str, Any], match: str
) -> None:
    pool.changes = changes
    with pytest.raises(VerificationFailed, match=match):
        held(3)


def test_a_later_epoch_than_the_first_that_holds_it_is_found(pool: Pool, held: Callable[[int], int]) -> None:
    pool.changes = {"epoch": 2, "size": 6, "root": root_of(pool.log, 6), "path": inclusion_proof(pool.log, 3, 6)}
    with pytest.raises(VerificationFailed, match="an earlier epoch"):
        held(3)


def test_another_leaf_in_its_place_is_not_anchored(pool: Pool) -> None:
    with pytest.raises(VerificationFailed, match="another leaf"):
        Anchors(pool, pool, 1).epoch_of(3, OTHER)  # type: ignore[arg-type]
    pool.changes = {"leaf_hash": OTHER}
    with pytest.raises(VerificationFailed, match="isn't under the root"):
        Anchors(pool, pool, 1).epoch_of(3, OTHER)  # type: ignore[arg-type]


def test_an_epoch_whose_head_is_forgotten_must_be_a_prefix_of_the_newest(
    pool: Pool, held: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchors, "NUM_HEADS_ON_CHAIN", 2)
    assert [held(index) for index in range(6)] == [0, 0, 0, 1, 1, 2]
    other = MemoryLog([OTHER, *(leaf(index) for index in range(1, 10))])
    pool.changes = {"root": root_of(other, 3), "path": inclusion_proof(other, 1, 3)}
    with pytest.raises(VerificationFailed, match="isn't a prefix"):
        held(1)
    pool.changes = {"link": ()}
    with pytest.raises(VerificationFailed, match="isn't a prefix"):
        held(1)


def test_a_chain_without_epochs_anchors_nothing(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "read", lambda *_: 0)
    with pytest.raises(StillOpen):
        Anchors(pool, pool, 1).epoch_of(0, leaf(0))  # type: ignore[arg-type]
