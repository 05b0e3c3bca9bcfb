"""Roles whose node is away for a while: each says what it waits for, and every epoch is committed once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from coordinator.indexer import index_chain
from coordinator.loop import Loop
from protocol.chain.contracts import Contracts
from protocol.chain.deployment import connect
from protocol.client import CoordinatorClient
from protocol.errors import NotEligible
from protocol.keystore import CHEAP_SCRYPT_N, create_keystore
from testnet.chain.genesis import dev_secrets
from tests.flaky_node import FlakyNode
from tests.integration.conftest import World
from tests.unit.coordinator.conftest import StandingClock
from trainer.config import TrainerConfig
from trainer.process import build_trainer
from verifier.config import VerifierConfig
from verifier.process import connect_verifier

NUM_FAILURES = 25


@pytest.fixture
def flaky(world: World) -> Iterator[FlakyNode]:
    with FlakyNode(world.chain.process.url) as proxy:
        contracts = Contracts.connect(proxy.url, world.contracts.addresses.ledger, StandingClock())
        world.coordinator.chain = contracts
        yield proxy
        contracts.client.rpc.close()


def turn(world: World, loop: Loop) -> Sequence[MutableMapping[str, Any]]:
    """Each stage once, then two seconds of the chain; what was logged."""
    with capture_logs() as logs:
        loop.turn()
    world.chain.pass_time(2)
    return logs


@pytest.mark.parametrize("how", ["http", "rpc"])
def test_stages_wait_and_go_on_where_they_were(world: World, flaky: FlakyNode, how: str) -> None:
    world.coordinator.config = world.coordinator.config.model_copy(update={"epoch_seconds": 1.0})
    loop = Loop(world.coordinator)
    committed = world.contracts.read("ledger", "epochCount", world.pool_id)
    world.lease()
    for _ in range(3):
        turn(world, loop)
    flaky.fail(how, NUM_FAILURES)
    waiting = [entry for entry in turn(world, loop) if entry["event"] == "loop.waiting"]
    assert "index_chain" in [entry["stage"] for entry in waiting]
    assert all(entry["detail"] for entry in waiting)
    while flaky.num_failed < NUM_FAILURES:
        turn(world, loop)
    for _ in range(20):
        turn(world, loop)
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


def keyed(folder: Path, secret: bytes) -> dict[str, Path]:
    """A keystore and its password file."""
    create_keystore(folder / "key.json", "of no value", secret=secret, scrypt_n=CHEAP_SCRYPT_N)
    (folder / "password").write_text("of no value")
    (folder / "password").chmod(0o600)
    return {"keystore": folder / "key.json", "password_file": folder / "password"}


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Contracts]]:
    """What roles connected to; their processes would end with it."""
    made: list[Contracts] = []

    def remembered(*arguments: Any, **named: Any) -> Contracts:
        made.append(connect(*arguments, **named))
        return made[-1]

    for role in ("trainer", "verifier"):
        monkeypatch.setattr(f"{role}.process.connect", remembered)
    yield made
    for contracts in made:
        contracts.client.rpc.close()


def waits_for_the_node(logs: Sequence[MutableMapping[str, Any]]) -> bool:
    waits = [entry for entry in logs if entry["event"] == "waiting"]
    return bool(waits) and waits[0]["awaited"] == "the chain's node" and "500" in waits[0]["why"]


def test_a_trainer_that_starts_waits_for_the_node(
    world: World, flaky: FlakyNode, tmp_path: Path, connected: list[Contracts]
) -> None:
    config = TrainerConfig(
        coordinator_url="http://coordinator.test",
        chain_url=flaky.url,
        pool_id=world.pool_id,
        ledger=world.contracts.addresses.ledger,
        base_model=tmp_path,
        data_dir=tmp_path / "trainer",
        origin_dir=tmp_path,
        **keyed(tmp_path, bytes(31) + b"\x07"),
    )
    flaky.fail("http", 60)
    with capture_logs() as logs, pytest.raises(NotEligible, match="isn't the pool's trainer"):
        build_trainer(config, StandingClock(), threading.Event())  # it gets as far as asking the chain who that is
    assert flaky.num_failed == 60
    assert waits_for_the_node(logs)
    assert (tmp_path / "trainer" / "deployment.json").exists()


def test_a_verifier_that_starts_waits_for_the_node(
    world: World, flaky: FlakyNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connected: list[Contracts]
) -> None:
    pool = world.client().pool()
    monkeypatch.setattr(CoordinatorClient, "pool", lambda _: pool)
    config = VerifierConfig(
        coordinator_url="http://coordinator.test",
        chain_url=flaky.url,
        pool_id=world.pool_id,
        data_dir=tmp_path / "verifier",
        **keyed(tmp_path, dev_secrets(5)[4]),
    )
    flaky.fail("http", 60)
    with capture_logs() as logs:
        verifier = connect_verifier(config, StandingClock(), threading.Event())
    assert verifier is not None and verifier.chain.num_epochs() == 0
    assert flaky.num_failed == 60
    assert waits_for_the_node(logs)
    assert len(connected) == 1
    flaky.fail("http", 1000)
    stopped = threading.Event()
    stopped.set()
    assert connect_verifier(config.model_copy(update={"data_dir": tmp_path / "b"}), StandingClock(), stopped) is None
