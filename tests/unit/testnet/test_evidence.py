"""Bundles that are kept: all of them lead to one head."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from protocol.bundle import HeadFact
from protocol.wire import ZERO_HASH
from testnet.evidence import fetch_bundles, trusted_head


class Coordinator:
    """Anchors another epoch after some of the bundles that it hands out."""

    def __init__(self, epochs: list[int]) -> None:
        self.epochs = epochs
        self.asked: list[str] = []

    def bundle(self, submission_id: str) -> Any:
        self.asked.append(submission_id)
        return SimpleNamespace(name=submission_id, chain=SimpleNamespace(heads=[head(0), head(self.epochs.pop(0))]))


def head(epoch: int) -> HeadFact:
    return HeadFact(epoch=epoch, size=10 * epoch, root=ZERO_HASH, beacon_hash=None)


def test_bundles_of_one_head_are_fetched_once() -> None:
    coordinator = Coordinator([4, 4])
    assert [bundle.name for bundle in fetch_bundles(coordinator, ["a", "b"])] == ["a", "b"]  # type: ignore[arg-type]
    assert coordinator.asked == ["a", "b"]


def test_bundles_of_an_older_head_are_fetched_again() -> None:
    coordinator = Coordinator([4, 5, 5, 6, 6, 6])
    bundles = fetch_bundles(coordinator, ["a", "b", "c"])  # type: ignore[arg-type]
    assert coordinator.asked == ["a", "b", "c", "a", "b", "c"][:3] + ["a"] + ["b", "c"]
    assert {bundle.chain.heads[-1].epoch for bundle in bundles} == {6}


def test_a_head_is_written_as_the_auditor_takes_it() -> None:
    assert trusted_head(head(3)) == f"3:30:{ZERO_HASH}"
