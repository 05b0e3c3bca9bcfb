"""Epochs reach the chain in order and once each, whatever is killed when."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import select

from coordinator import sender
from coordinator.audit import consistency, inclusion
from coordinator.db.chain import Epoch
from coordinator.db.log import Event, Outbox
from coordinator.epochs import CLOSED, can_close_epoch, close_epoch, seal_epochs
from coordinator.indexer import index_chain
from coordinator.outbox import CallState, queue_call
from coordinator.sender import send_outbox
from coordinator.versions import seal_versions
from protocol.chain.client import ChainClient
from protocol.chain.contracts import encode
from protocol.chain.fees import GWEI
from protocol.chain.transaction import Transaction
from protocol.errors import NodeRefused, NotFound
from protocol.merkle.history import verify_consistency, verify_inclusion
from testnet.chain.genesis import CHAIN_ID
from tests.integration.conftest import World


def committed(world: World) -> list[tuple[int, int, str]]:
    """(epoch, size, root) as the chain has them."""
    count = world.read("ledger", "epochCount", world.pool_id)
    found = [world.read("ledger", "epochOf", world.pool_id, epoch) for epoch in range(count)]
    return [(epoch, head["size"], head["root"]) for epoch, head in enumerate(found)]


def closed(world: World) -> list[tuple[int, int, str]]:
    with world.coordinator.reading() as session:
        return [(row.epoch, row.size, row.root) for row in session.scalars(select(Epoch).order_by(Epoch.epoch))]


def num_sent(world: World) -> int:
    return world.contracts.client.transaction_count(world.coordinator.signer.address)


def test_epochs_are_anchored_in_order_with_their_own_leaf_last(world: World) -> None:
    for number in range(3):
        assert world.close_epoch() == number
    assert committed(world) == closed(world)
    with world.coordinator.reading() as session:
        for epoch in session.scalars(select(Epoch)):
            document = json.loads(session.get_one(Event, epoch.size - 1).document)
            assert (document["type"], document["data"]["epoch"]) == (CLOSED, epoch.epoch)
            assert epoch.transaction_hash is not None and epoch.block is not None


def test_each_commit_stores_the_beacon_of_the_epoch_before(world: World) -> None:
    for _ in range(3):
        world.close_epoch()
    views = world.client().epochs()
    assert [view.beacon_hash is not None for view in views] == [True, True, False]
    for view in views[:2]:
        assert view.beacon_hash == world.read("ledger", "epochBeacon", world.pool_id, view.epoch)


def test_an_epoch_waits_for_its_time_and_for_the_one_before_it(world: World) -> None:
    world.close_epoch()
    with world.coordinator.reading() as session:
        assert not can_close_epoch(session, epoch_seconds=1, forced=True)  # its beacon's block isn't mined yet
    world.chain.mine(2)
    index_chain(world.coordinator)
    with world.coordinator.reading() as session:
        assert can_close_epoch(session, epoch_seconds=10**6, forced=True)
        assert not can_close_epoch(session, epoch_seconds=10**6)
    world.chain.pass_time(10**6)
    index_chain(world.coordinator)
    with world.coordinator.reading() as session:
        assert can_close_epoch(session, epoch_seconds=10**6)


def test_an_epoch_on_its_way_holds_back_the_next(world: World) -> None:
    close_epoch(world.coordinator, forced=True)
    close_epoch(world.coordinator, forced=True)
    assert len(closed(world)) == 1 and world.outbox(CallState.QUEUED) == ["epoch:0"]


class Killed(BaseException):
    """The process ends here."""


def kill(*_: object, **__: object) -> None:
    raise Killed


MOST_TURNS = 200
"""A busy node's receipts come a moment after their blocks."""


def see_mined(world: World, purpose: str) -> None:
    """Send until a call is mined, which must come soon."""
    for _ in range(MOST_TURNS):
        send_outbox(world.coordinator)
        if world.outbox_row(purpose).state == CallState.MINED:
            return
    raise AssertionError(f"{purpose} isn't mined")


@pytest.mark.parametrize("point", ["before signing", "before sending", "after sending", "before noting"])
def test_a_kill_at_any_point_doubles_and_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    close_epoch(world.coordinator, forced=True)
    before = num_sent(world)
    with monkeypatch.context() as patched:
        if point == "before signing":
            patched.setattr(sender, "_hand_over", kill)
        elif point == "before sending":
            patched.setattr(ChainClient, "send_raw", kill)
        elif point == "after sending":
            send = ChainClient.send_raw
            patched.setattr(ChainClient, "send_raw", lambda self, raw: (send(self, raw), kill()))
        else:
            send_outbox(world.coordinator)
            patched.setattr(sender, "_mark_mined", kill)
        with pytest.raises(Killed):
            for _ in range(MOST_TURNS):
                send_outbox(world.coordinator)
    world.restart()
    world.clock.seconds += 60
    see_mined(world, "epoch:0")
    assert num_sent(world) == before + 1
    assert committed(world) == closed(world) and len(closed(world)) == 1
    assert world.outbox(CallState.MINED)[-1] == "epoch:0"
    assert world.close_epoch() == 1


def test_a_commit_that_somebody_else_sent_counts(world: World) -> None:
    close_epoch(world.coordinator, forced=True)
    epoch, size, root = closed(world)[0]
    world.send(world.coordinator.signer, "ledger", "commitEpoch", world.pool_id, epoch, size, root, [])
    before = num_sent(world)
    send_outbox(world.coordinator)
    assert num_sent(world) == before
    assert world.outbox(CallState.MINED)[-1] == "epoch:0"


def test_a_transaction_that_failed_because_it_had_happened_counts(world: World) -> None:
    """Somebody else was faster between the estimate and the block: the receipt says failed, the state says done."""
    if world.chain.process.name != "anvil":
        pytest.skip("only anvil orders a block by fees")
    rpc = world.contracts.client.rpc
    world.publish(1, sealed=False)
    world.chain.mine(3)
    index_chain(world.coordinator)
    seal_versions(world.coordinator)
    seal = Transaction(
        chain_id=CHAIN_ID,
        nonce=world.contracts.client.transaction_count(world.provider.address),
        max_priority_fee_wei=20 * GWEI,
        max_fee_wei=100 * GWEI,
        gas_limit=200_000,
        to=world.contracts.addresses.ledger,
        data=encode("ledger", "sealVersion", world.pool_id, 1),
    ).sign(world.provider)
    rpc.call("evm_setAutomine", False)
    send_outbox(world.coordinator)
    world.contracts.client.send_raw(seal.raw)  # pays more, so it comes first
    rpc.call("evm_setAutomine", True)
    world.chain.mine()
    row = world.outbox_row(world.outbox(CallState.SENT)[0])
    receipt = world.contracts.client.receipt(row.transaction_hash or "")
    assert receipt is not None and not receipt.succeeded
    send_outbox(world.coordinator)
    assert world.outbox(CallState.SENT) == [] and row.purpose in world.outbox(CallState.MINED)


def test_a_refused_call_doesnt_hold_up_the_others(world: World) -> None:
    with world.coordinator.writing() as session:
        queue_call(
            session, "epoch:7", "ledger", encode("ledger", "commitEpoch", world.pool_id, 7, 1, "0x" + "11" * 32, [])
        )
    assert world.close_epoch() == 0
    assert world.outbox(CallState.QUEUED) == ["epoch:7"]
    with world.coordinator.reading() as session:
        row = session.scalars(select(Outbox).where(Outbox.purpose == "epoch:7")).one()
        assert row.refusal is not None and "EpochOutOfOrder" in row.refusal


def test_what_the_node_didnt_take_is_sent_again_at_a_higher_fee(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    close_epoch(world.coordinator, forced=True)

    def refuse(self: ChainClient, raw: str) -> str:
        raise NodeRefused("eth_sendRawTransaction", -32000, "txpool is full")

    with monkeypatch.context() as patched:
        patched.setattr(ChainClient, "send_raw", refuse)
        send_outbox(world.coordinator)
    first = world.outbox_row("epoch:0").transaction_hash
    send_outbox(world.coordinator)
    assert world.outbox_row("epoch:0").transaction_hash == first  # not yet: it may still be on its way
    world.clock.seconds += sender.RESEND_SECONDS
    see_mined(world, "epoch:0")
    assert world.outbox_row("epoch:0").transaction_hash != first
    assert committed(world) == closed(world)


@pytest.mark.parametrize("gas", [0, 10**9, 2**256 - 1])
def test_gas_that_a_node_misjudged_is_asked_for_again(world: World, monkeypatch: pytest.MonkeyPatch, gas: int) -> None:
    close_epoch(world.coordinator, forced=True)
    with monkeypatch.context() as patched:
        patched.setattr(ChainClient, "estimate_gas", lambda *_: gas)
        send_outbox(world.coordinator)
    row = world.outbox_row("epoch:0")
    assert (row.state == CallState.QUEUED) == ("more gas than a block has" in (row.refusal or "")) == (gas > 0)
    assert committed(world) == []
    world.clock.seconds += sender.RESEND_SECONDS
    see_mined(world, "epoch:0")
    assert committed(world) == closed(world)


def test_a_nonce_that_no_block_can_take_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    close_epoch(world.coordinator, forced=True)
    count, before = ChainClient.transaction_count, num_sent(world)
    with monkeypatch.context() as patched:
        patched.setattr(ChainClient, "transaction_count", lambda self, address: count(self, address) + 1)
        send_outbox(world.coordinator)
    send_outbox(world.coordinator)
    assert world.outbox_row("epoch:0").nonce == before + 1 and committed(world) == []
    world.clock.seconds += sender.RESEND_SECONDS
    send_outbox(world.coordinator)
    row = world.outbox_row("epoch:0")
    assert (row.state, row.nonce) == (CallState.QUEUED, None) and "is ahead of" in (row.refusal or "")
    see_mined(world, "epoch:0")
    assert committed(world) == closed(world)


def test_a_beacon_that_a_late_commit_missed_is_sealed_by_itself(world: World) -> None:
    world.close_epoch()
    world.chain.mine(300)  # its block is out of reach: the commit arms it again
    world.close_epoch()
    world.run_until(lambda: world.client().epochs()[0].beacon_hash is not None, [seal_epochs, send_outbox])
    assert world.client().epochs()[0].beacon_hash == world.read("ledger", "epochBeacon", world.pool_id, 0)


def test_proofs_lead_from_any_leaf_to_the_chain(world: World) -> None:
    for _ in range(3):
        world.close_epoch()
    client = world.client()
    heads = committed(world)
    entries = list(client.all_entries())
    for entry in entries[: heads[-1][1]]:
        proof = client.inclusion(entry.index)
        assert (proof.epoch, proof.size, proof.root) == heads[proof.epoch]
        assert proof.epoch == 0 or heads[proof.epoch - 1][1] <= entry.index
        assert verify_inclusion(entry.leaf_hash, entry.index, proof.size, proof.path, proof.root)
        assert world.read(
            "ledger", "verifySubmission", world.pool_id, proof.epoch, entry.index, entry.leaf_hash, proof.path
        )
    linked = client.consistency(0, 2)
    assert verify_consistency(linked.old_size, linked.new_size, linked.old_root, linked.new_root, linked.path)


def test_there_is_no_proof_where_nothing_is_anchored(world: World) -> None:
    world.close_epoch()
    with world.coordinator.reading() as session:
        with pytest.raises(NotFound):
            inclusion(session, closed(world)[-1][1])
        with pytest.raises(NotFound):
            consistency(session, 0, 1)
