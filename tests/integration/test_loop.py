"""The coordinator's loop on a real chain: everything that needs nobody's request happens by itself."""

from __future__ import annotations

import pytest

from coordinator.indexer import index_chain
from coordinator.loop import Loop
from protocol.chain.client import ChainClient
from protocol.errors import ChainError
from tests.integration.conftest import World


def every_second(world: World) -> Loop:
    """The loop over a coordinator whose epochs last a second of chain time."""
    config = world.coordinator.config.model_copy(update={"epoch_seconds": 1.0})
    world.coordinator.config = config
    return Loop(world.coordinator)


def test_epochs_follow_each_other_and_versions_are_sealed(world: World) -> None:
    loop = every_second(world)
    world.publish(1, sealed=False)
    for _ in range(16):
        loop.turn()
        world.chain.pass_time(1)
    index_chain(world.coordinator)
    assert world.version(1).beacon_hash is not None
    committed = world.read("ledger", "epochCount", world.pool_id)
    views = world.client().epochs()
    assert committed >= 3 and len(views) - committed in (0, 1)
    assert all(view.beacon_hash is not None for view in views[: committed - 1])


def test_a_chain_that_doesnt_answer_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = every_second(world)

    def unreachable(self: ChainClient) -> None:
        raise ChainError("the node can't be reached")

    with monkeypatch.context() as patched:
        patched.setattr(ChainClient, "head", unreachable)
        loop.turn()
    world.submit()
    world.chain.pass_time(5)
    for _ in range(3):
        loop.turn()
    assert world.client().epochs()[0].block is not None


def test_the_log_tells_in_order_what_happened(world: World) -> None:
    submission_id = world.accept()
    events = [entry.event for entry in world.client().all_entries()]
    assert [event["index"] for event in events] == list(range(len(events)))
    own = [event["type"] for event in events if event["subject"] == submission_id]
    assert own == ["submission.received", "draw.opened", "verdict.revealed", "submission.accepted"]
    types = {event["type"] for event in events}
    assert {"chain.PoolCreated", "chain.EpochCommitted", "weights.announced", "epoch.closed", "task.leased"} <= types
