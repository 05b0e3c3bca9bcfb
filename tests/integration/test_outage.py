"""A coordinator whose node is away for a minute: it says what it waits for, and every epoch is committed once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from coordinator.indexer import index_chain
from coordinator.loop import Loop
from protocol.chain.contracts import Contracts
from tests.flaky_node import FlakyNode
from tests.integration.conftest import World
from tests.unit.coordinator.conftest import StandingClock


@pytest.fixture
def flaky(world: World) -> Iterator[FlakyNode]:
    with FlakyNode(world.chain.process.url) as proxy:
        contracts = Contracts.connect(proxy.url, world.contracts.addresses.ledger, StandingClock())
        world.coordinator.chain = contracts
        yield proxy
        contracts.client.rpc.close()


@pytest.mark.parametrize("how", ["http", "rpc"])
def test_stages_wait_and_go_on_where_they_were(world: World, flaky: FlakyNode, how: str) -> None:
    world.coordinator.config = world.coordinator.config.model_copy(update={"epoch_seconds": 1.0})
    loop = Loop(world.coordinator)
    committed = world.contracts.read("ledger", "epochCount", world.pool_id)
    world.lease()
    for turn in range(30):
        if turn == 3:
            flaky.fail(how, 25)
        with capture_logs() as logs:
            loop.turn()
        if 3 < turn < 8:
            waiting = [entry for entry in logs if entry["event"] == "loop.waiting"]
            assert "index_chain" in [entry["stage"] for entry in waiting]
            assert all(entry["detail"] for entry in waiting)
        world.chain.pass_time(2)
    assert flaky.num_failed == 25
    index_chain(world.coordinator)
    newest = world.epoch()
    assert newest is not None
    assert world.contracts.read("ledger", "epochCount", world.pool_id) > committed + 3
    assert world.read("ledger", "epochOf", world.pool_id, newest.epoch - 1)["root"] != "0x" + "00" * 32
    client = world.contracts.client
    ledger = world.contracts.address("ledger")
    epochs = [
        event.arguments["epoch"]
        for log in client.logs([ledger], 0, client.head().number)
        if (event := world.contracts.decode(log)) is not None and event.name == "EpochCommitted"
    ]
    assert epochs == list(range(len(epochs)))
