"""Two coordinators on one account by mistake: the second is told, nothing is doubled, no epoch is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from coordinator.db.chain import Epoch
from coordinator.epochs import close_epoch, newest_epoch
from coordinator.indexer import index_chain
from coordinator.outbox import CallState
from coordinator.sender import RESEND_SECONDS, send_outbox
from protocol.errors import ProofpoolError
from tests.integration.conftest import World, make_coordinator


def twin(world: World, folder: Path) -> Any:
    """Another coordinator with the same key, over a copy of the database."""
    folder.mkdir()
    source = sqlite3.connect(world.coordinator.config.data_dir / "coordinator.sqlite")
    with closing(source), closing(sqlite3.connect(folder / "coordinator.sqlite")) as copy:
        source.backup(copy)
    config = world.coordinator.config.model_copy(update={"data_dir": folder})
    return make_coordinator(config, world.contracts, world.coordinator.signer, world.clock)


def newest(coordinator: Any) -> Epoch:
    with coordinator.reading() as session:
        found = newest_epoch(session)
    assert found is not None
    return found


def committed(world: World) -> list[tuple[int, str]]:
    """Epoch and root of every commit on chain, in order."""
    logs = world.contracts.client.logs([world.contracts.address("ledger")], 0, world.contracts.client.head().number)
    events = [event for log in logs if (event := world.contracts.decode(log)) is not None]
    return [
        (event.arguments["epoch"], event.arguments["root"])
        for event in events
        if event.name == "EpochCommitted" and event.arguments["pool_id"] == world.pool_id
    ]


@contextmanager
def mined_together(world: World) -> Iterator[None]:
    """What is sent inside waits for one block, at the end."""
    client = world.contracts.client
    client.rpc.call("evm_setAutomine", False)
    try:
        yield
        world.chain.mine()
    finally:
        client.rpc.call("evm_setAutomine", True)


def with_an_epoch_queued(world: World) -> int:
    """The number of an epoch whose commit is in the outbox, the one before it being out of the way."""
    world.close_epoch()
    world.chain.mine(3)
    index_chain(world.coordinator)
    send_outbox(world.coordinator)  # its receipt may come a moment late, and one call is on its way at a time
    close_epoch(world.coordinator, forced=True)
    return newest(world.coordinator).epoch


def test_the_second_is_told_and_the_first_goes_on(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.close_epoch()
    world.chain.mine(3)
    index_chain(world.coordinator)
    other = twin(world, tmp_path / "twin")
    world.lease()  # from here on the two logs differ
    for each in (world.coordinator, other):
        close_epoch(each, forced=True)
    ours, theirs = newest(world.coordinator), newest(other)
    assert ours.epoch == theirs.epoch and ours.root != theirs.root
    nonce = world.contracts.client.transaction_count(world.coordinator.signer.address)
    with mined_together(world), capture_logs() as logs, monkeypatch.context() as patched:
        patched.setattr(world.contracts.client, "estimate_gas", lambda *_: 200_000)
        for each in (world.coordinator, other):
            send_outbox(each)  # neither knows what the other has on its way: both take the same nonce
    assert [entry["event"] for entry in logs] == ["outbox.sent", "outbox.not_taken"]
    send_outbox(world.coordinator)
    index_chain(world.coordinator)
    with pytest.raises(ProofpoolError, match="anchors another log") as told:
        index_chain(other)
    assert "another coordinator uses this key" in told.value.todo
    assert world.contracts.client.transaction_count(world.coordinator.signer.address) == nonce + 1
    last = world.close_epoch()
    assert [epoch for epoch, _ in committed(world)] == list(range(last + 1))
    assert committed(world)[ours.epoch] == (ours.epoch, ours.root)
    other.engine.dispose()


def test_a_nonce_that_went_elsewhere_is_told_and_the_epoch_is_sent_again(world: World) -> None:
    """Somebody sends something else with the coordinator's key while a commit is on its way."""
    number = with_an_epoch_queued(world)
    with mined_together(world):
        send_outbox(world.coordinator)
        row = world.outbox_row(f"epoch:{number}")
        assert (row.state, row.replaced) == (CallState.SENT, [])
        overbid(world, row.nonce or 0)
    with capture_logs() as logs:
        send_outbox(world.coordinator)
    assert logs[0]["event"] == "account.shared"
    assert f"nonce {row.nonce} of {world.coordinator.signer.address}" in logs[0]["detail"]
    assert world.outbox(CallState.QUEUED) == [f"epoch:{number}"]
    world.run_until(lambda: newest(world.coordinator).block is not None, [send_outbox])
    assert [epoch for epoch, _ in committed(world)] == list(range(number + 1))


def test_a_stuck_commit_is_raised_and_either_version_counts(world: World) -> None:
    number = with_an_epoch_queued(world)
    with mined_together(world):
        send_outbox(world.coordinator)
        first = world.outbox_row(f"epoch:{number}")
        world.clock.seconds += RESEND_SECONDS
        send_outbox(world.coordinator)
        second = world.outbox_row(f"epoch:{number}")
        assert (second.nonce, second.replaced) == (first.nonce, [first.transaction_hash])
        assert second.transaction_hash != first.transaction_hash
    assert world.contracts.client.receipt(first.transaction_hash or "") is None
    with capture_logs() as logs:
        send_outbox(world.coordinator)
    assert [entry["event"] for entry in logs] == ["outbox.mined"]
    assert [epoch for epoch, _ in committed(world)] == list(range(number + 1))


def overbid(world: World, nonce: int) -> None:
    from protocol.chain.transaction import Transaction

    fee, signer = 400 * 10**9, world.coordinator.signer
    call = Transaction(world.contracts.client.chain_id, nonce, fee, fee, 21_000, signer.address, 1)
    world.contracts.client.send_raw(call.sign(signer).raw)
