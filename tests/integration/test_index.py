"""The indexer against a real chain: mirrors say what the contracts say, after restarts and reorgs too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from coordinator import indexer
from coordinator.db.chain import Allotment, ChainBlock, ChainEvent, CoordinatorBond, Node, Pool, Seat, Version
from coordinator.db.log import Event
from coordinator.db.work import TaskRow
from coordinator.epochs import close_epoch
from coordinator.indexer import index_chain
from coordinator.log import log_size
from coordinator.log_nodes import LogNodes
from coordinator.outbox import CallState
from coordinator.sender import send_outbox
from coordinator.versions import seal_versions, weights_view
from protocol.chain.client import ChainClient
from protocol.chain.lane import Lane
from protocol.errors import ChainError, NodeRefused, NotFound, Rejected, WrongChain
from protocol.merkle.history import MemoryLog, root_of
from protocol.reasons import RejectReason
from protocol.wire import Signed, WeightsRelease
from testnet.chain.genesis import CHAIN_ID
from tests.integration.conftest import CREDIT, PRICE_WEI, World, make_coordinator, number_hash, pool_config

MIRRORS = (Pool, CoordinatorBond, Node, Allotment, Seat, Version, ChainEvent)
NOT_FROM_THE_CHAIN = {"release_signature", "id"}


def mirrors(coordinator: Any) -> dict[str, list[dict[str, Any]]]:
    """All mirror rows, without what only this database knows."""
    with coordinator.reading() as session:
        return {
            table.__tablename__: sorted(
                (
                    {c.name: getattr(row, c.name) for c in table.__table__.columns if c.name not in NOT_FROM_THE_CHAIN}
                    for row in session.scalars(select(table))
                ),
                key=str,
            )
            for table in MIRRORS
        }


def fresh_coordinator(world: World, folder: Path, database: bytes) -> Any:
    """Another coordinator that has seen nothing yet."""
    folder.mkdir()
    (folder / "coordinator.sqlite").write_bytes(database)
    config = world.coordinator.config.model_copy(update={"data_dir": folder})
    return make_coordinator(config, world.contracts, world.coordinator.signer, world.clock)


def copies(coordinator: Any) -> list[dict[str, Any]]:
    """The log's chain.* documents in order."""
    with coordinator.reading() as session:
        found = session.scalars(select(Event).where(Event.type.like("chain.%")).order_by(Event.index))
        return [json.loads(event.document) for event in found]


def test_mirrors_say_what_the_contracts_say(world: World) -> None:
    with world.coordinator.reading() as session:
        pool = session.get_one(Pool, world.pool_id)
        allotment = session.get_one(Allotment, (world.node.address, world.pool_id))
        seats = session.scalars(select(Seat).order_by(Seat.seat)).all()
        assert session.get_one(Node, world.node.address).provider == world.provider.address
    assert pool.funded_wei == world.read("pools", "funds", world.pool_id) == 1000 * CREDIT
    assert allotment.amount_wei == world.read("registry", "allotment", world.node.address, world.pool_id)
    assert [seat.validator for seat in seats] == [validator.address for validator in world.validators]
    assert world.version(0).beacon_hash == world.read("ledger", "versionOf", world.pool_id, 0)["beacon_hash"]


def test_stake_that_leaves_and_keys_that_change_are_mirrored(world: World) -> None:
    creator = world.chain.creator
    world.send(world.provider, "registry", "deallot", world.node.address, world.pool_id, 20 * CREDIT)
    world.send(world.provider, "registry", "removeNode", world.node.address)
    world.send(world.validators[0], "registry", "releaseSeat", world.pool_id, 0)
    world.send(creator, "pools", "setPaused", world.pool_id, True)
    world.send(creator, "pools", "revokeKey", world.pool_id, 1)
    index_chain(world.coordinator)
    with world.coordinator.reading() as session:
        pool = session.get_one(Pool, world.pool_id)
        assert session.get_one(Allotment, (world.node.address, world.pool_id)).amount_wei == 30 * CREDIT
        assert session.get_one(Node, world.node.address).removed
        assert session.get_one(Seat, (world.pool_id, 0)).active_until_epoch == 2
        assert pool.paused and pool.trainer == "0x" + "00" * 20


def test_announced_terms_come_into_force_with_their_time(world: World) -> None:
    price, rules_hash = 2 * PRICE_WEI, number_hash(77)
    world.send(world.chain.creator, "pools", "announceTerms", world.pool_id, price, 1, rules_hash)
    index_chain(world.coordinator)
    with world.coordinator.reading() as session:
        assert session.get_one(Pool, world.pool_id).price_wei == PRICE_WEI
    world.chain.pass_time(world.read("pools", "announcedTerms", world.pool_id)["effective_time"])
    index_chain(world.coordinator)
    with world.coordinator.reading() as session:
        pool = session.get_one(Pool, world.pool_id)
    found = world.read("pools", "termsOf", world.pool_id)
    assert (pool.price_wei, pool.verify_price_wei, pool.rules_hash) == (price, 1, rules_hash) == tuple(found.values())


@pytest.mark.parametrize("page_blocks", [1, 3, 1000])
def test_one_pass_or_many_give_the_same_rows(
    world: World, tmp_path: Path, empty_database: bytes, monkeypatch: pytest.MonkeyPatch, page_blocks: int
) -> None:
    monkeypatch.setattr(indexer, "PAGE_BLOCKS", page_blocks)
    other = fresh_coordinator(world, tmp_path / "other", empty_database)
    index_chain(world.coordinator)
    index_chain(other)
    index_chain(other)
    assert mirrors(other) == mirrors(world.coordinator)
    other.engine.dispose()


def test_each_event_is_in_the_log_once_whatever_is_killed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.send(world.provider, "registry", "allot", world.node.address, world.pool_id, CREDIT)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(indexer, "apply_due_terms", die)
        with pytest.raises(KeyboardInterrupt):
            index_chain(world.coordinator)
    world.restart()
    for _ in range(2):
        index_chain(world.coordinator)
    named = [(copy["data"]["block_hash"], copy["data"]["log_index"]) for copy in copies(world.coordinator)]
    assert len(named) == len(set(named))
    with world.coordinator.reading() as session:
        assert len(named) == len(session.scalars(select(ChainEvent)).all())
        assert session.get_one(Allotment, (world.node.address, world.pool_id)).amount_wei == 51 * CREDIT


def test_events_of_other_pools_are_left_alone(world: World) -> None:
    before = mirrors(world.coordinator)
    config = pool_config(world.rules, world.coordinator.signer, world.trainer)
    world.send(world.chain.creator, "pools", "createPool", config)
    world.send(world.provider, "registry", "allot", world.node.address, world.pool_id + 1, CREDIT)
    index_chain(world.coordinator)
    assert mirrors(world.coordinator) == before


def reorg(world: World, depth: int) -> None:
    """Replace the newest `depth` blocks by one more, empty ones, so that the chain is longer."""
    world.chain.reorg(depth)
    world.chain.mine()


def test_a_reorg_takes_back_what_the_chain_has_dropped(world: World, tmp_path: Path, empty_database: bytes) -> None:
    kept = mirrors(world.coordinator)
    base = world.contracts.client.head().number
    with world.coordinator.reading() as session:
        size = log_size(session)
        root = root_of(LogNodes(session), size)
    world.send(world.provider, "registry", "allot", world.node.address, world.pool_id, CREDIT)
    world.send(world.validators[0], "registry", "bondSeat", world.pool_id)
    index_chain(world.coordinator)
    assert mirrors(world.coordinator) != kept
    reorg(world, world.contracts.client.head().number - base)
    index_chain(world.coordinator)
    assert mirrors(world.coordinator) == kept
    fresh = fresh_coordinator(world, tmp_path / "fresh", empty_database)
    index_chain(fresh)
    assert mirrors(fresh) == kept
    fresh.engine.dispose()
    # The log only grows: what was copied stays, and a leaf says that it is void.
    with world.coordinator.reading() as session:
        assert root_of(LogNodes(session), size) == root
        leaves = session.scalars(select(Event.leaf_hash).order_by(Event.index)).all()
        assert MemoryLog(leaves).root == root_of(LogNodes(session), len(leaves))
    assert copies(world.coordinator)[-1]["type"] == "chain.reorged"


def test_a_dropped_beacon_voids_the_open_work_of_its_version(world: World) -> None:
    kept = world.accept()
    base = world.contracts.client.head().number
    world.publish(1)
    void = world.lease(policy_version=1).message.id(world.domain)
    received = world.submit(world.lease(policy_version=1))
    reorg(world, world.contracts.client.head().number - base)
    index_chain(world.coordinator)
    with world.coordinator.reading() as session:
        assert session.get(Version, (world.pool_id, 1)) is None
        standings = dict(session.execute(select(Event.subject, Event.type).where(Event.type == "task.reorged")).all())
        assert session.scalars(select(TaskRow.reserved_wei)).all() == [0, 0, 0]
    assert void in standings and len(standings) == 2
    assert (world.standing(kept), world.standing(received)) == ("accepted", "reorged")


def test_a_dropped_call_is_sent_again(world: World) -> None:
    base = world.contracts.client.head().number
    number = world.close_epoch()
    assert world.read("ledger", "epochCount", world.pool_id) == number + 1
    reorg(world, world.contracts.client.head().number - base)
    assert world.read("ledger", "epochCount", world.pool_id) == number
    index_chain(world.coordinator)
    assert f"epoch:{number}" in world.outbox(CallState.SENT)
    world.clock.seconds += 60
    world.run_until(lambda: world.read("ledger", "epochCount", world.pool_id) == number + 1, [send_outbox])
    epoch = world.epoch()
    assert epoch is not None
    assert world.read("ledger", "epochOf", world.pool_id, number)["root"] == epoch.root


def wait_until_mined(world: World, nonce: int) -> None:
    """A node may answer a moment before it has made the block; no other block may come, since reorgs count them."""
    for _ in range(1000):
        if world.contracts.client.transaction_count(world.coordinator.signer.address) > nonce:
            return
    raise AssertionError("the transaction isn't mined")


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_an_epoch_that_a_reorg_removed_is_committed_again_exactly_once(world: World, depth: int) -> None:
    number = world.close_epoch() + 1
    world.chain.mine(3)  # the block of the last one's beacon
    index_chain(world.coordinator)
    send_outbox(world.coordinator)  # a receipt may come a moment late, and one call is on its way at a time
    close_epoch(world.coordinator, forced=True)
    nonce = world.contracts.client.transaction_count(world.coordinator.signer.address)
    send_outbox(world.coordinator)
    wait_until_mined(world, nonce)
    index_chain(world.coordinator)
    committed = world.epoch()
    assert committed is not None and committed.epoch == number and committed.block is not None
    world.chain.mine(depth - 1)
    index_chain(world.coordinator)
    send_outbox(world.coordinator)
    assert world.outbox_row(f"epoch:{number}").state == CallState.MINED
    world.chain.reorg(depth)
    assert world.read("ledger", "epochCount", world.pool_id) == number
    world.clock.seconds += 60
    for _ in range(6):
        index_chain(world.coordinator)
        send_outbox(world.coordinator)
        world.chain.mine()
    again = world.epoch()
    assert again is not None and (again.root, again.size) == (committed.root, committed.size)
    assert world.read("ledger", "epochOf", world.pool_id, number)["root"] == committed.root
    client = world.contracts.client
    commits = [
        event.arguments["epoch"]
        for log in client.logs([world.contracts.address("ledger")], 0, client.head().number)
        if (event := world.contracts.decode(log)) is not None and event.name == "EpochCommitted"
    ]
    assert commits == sorted(set(commits)) and commits[-1] == number
    assert world.contracts.client.transaction_count(world.coordinator.signer.address) == nonce + 1
    assert world.outbox_row(f"epoch:{number}").state == CallState.MINED
    assert again.block is not None and again.transaction_hash == world.outbox_row(f"epoch:{number}").transaction_hash
    assert [copy["type"] for copy in copies(world.coordinator)].count("chain.reorged") == 1


@pytest.mark.parametrize("by_somebody_else", [False, True])
@pytest.mark.parametrize(("confirmations", "depth"), [(2, 1), (5, 4)])
def test_what_a_reorg_drops_before_it_is_confirmed_is_sent_again(
    world: World, confirmations: int, depth: int, by_somebody_else: bool
) -> None:
    number = world.close_epoch() + 1
    world.chain.mine(5)
    index_chain(world.coordinator)
    send_outbox(world.coordinator)
    world.pool(confirmations=confirmations)
    close_epoch(world.coordinator, forced=True)
    epoch, nonce = world.epoch(), world.contracts.client.transaction_count(world.coordinator.signer.address)
    row = world.outbox_row(f"epoch:{number}")
    if by_somebody_else:
        to = world.contracts.addresses.ledger
        Lane(world.contracts.client, world.coordinator.signer, world.clock).send(to, row.data)
    else:
        send_outbox(world.coordinator)
    wait_until_mined(world, nonce)
    world.chain.mine(depth - 1)
    index_chain(world.coordinator)
    send_outbox(world.coordinator)
    assert world.outbox_row(row.purpose).state == CallState.MINED
    assert epoch is not None and epoch.block is None, "it isn't confirmed"
    world.chain.reorg(depth)
    assert world.read("ledger", "epochCount", world.pool_id) == number
    for _ in range(3 * confirmations):
        world.clock.seconds += 20
        index_chain(world.coordinator)
        send_outbox(world.coordinator)
        world.chain.mine()
    index_chain(world.coordinator)
    assert world.read("ledger", "epochCount", world.pool_id) == number + 1
    assert world.contracts.client.transaction_count(world.coordinator.signer.address) == nonce + 1
    assert world.outbox_row(row.purpose).state == CallState.MINED
    again = world.epoch()
    assert again is not None and again.epoch == number and again.block is not None


def test_a_call_that_is_confirmed_isnt_looked_for_again(world: World) -> None:
    number = world.close_epoch() + 1
    world.chain.mine(5)
    index_chain(world.coordinator)
    send_outbox(world.coordinator)
    world.pool(confirmations=3)
    close_epoch(world.coordinator, forced=True)
    nonce = world.contracts.client.transaction_count(world.coordinator.signer.address)
    send_outbox(world.coordinator)
    wait_until_mined(world, nonce)
    for _ in range(6):
        index_chain(world.coordinator)
        send_outbox(world.coordinator)
        assert world.outbox_row(f"epoch:{number}").state == CallState.MINED
        world.chain.mine()
    epoch, row = world.epoch(), world.outbox_row(f"epoch:{number}")
    assert epoch is not None and epoch.block == row.block


def test_a_reorg_that_made_the_chain_no_longer_is_noticed_at_once(world: World) -> None:
    kept = mirrors(world.coordinator)
    world.send(world.provider, "registry", "allot", world.node.address, world.pool_id, CREDIT)
    index_chain(world.coordinator)
    assert mirrors(world.coordinator) != kept
    world.chain.reorg(1)
    index_chain(world.coordinator)
    assert mirrors(world.coordinator) == kept


def test_a_node_that_lags_behind_makes_nobody_forget(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = world.contracts.client
    old = client.head()
    world.send(world.provider, "registry", "allot", world.node.address, world.pool_id, CREDIT)
    index_chain(world.coordinator)
    kept = mirrors(world.coordinator)
    monkeypatch.setattr(client, "head", lambda: old)
    index_chain(world.coordinator)
    assert mirrors(world.coordinator) == kept


@pytest.mark.parametrize("num_given", [0, 1])
def test_logs_that_a_node_leaves_out_are_noticed_and_read_later(
    world: World, monkeypatch: pytest.MonkeyPatch, num_given: int
) -> None:
    client, kept = world.contracts.client, mirrors(world.coordinator)
    if not client.head().logs_bloom:
        pytest.skip("this node's headers have no bloom")
    for _ in range(2):
        world.send(world.provider, "registry", "allot", world.node.address, world.pool_id, CREDIT)
    with monkeypatch.context() as behind:
        logs = client.logs
        behind.setattr(client, "logs", lambda *asked: list(logs(*asked))[:num_given])
        with pytest.raises(ChainError, match="leaves out"):
            index_chain(world.coordinator)
        assert mirrors(world.coordinator) == kept
    index_chain(world.coordinator)
    assert mirrors(world.coordinator) != kept
    with world.coordinator.reading() as session:
        allotted_wei = session.get_one(Allotment, (world.node.address, world.pool_id)).amount_wei
    assert allotted_wei == world.read("registry", "allotment", world.node.address, world.pool_id)


def test_quiet_blocks_are_not_asked_for_one_by_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rpc, asked = world.contracts.client.rpc, []
    call = rpc.batch
    monkeypatch.setattr(rpc, "batch", lambda calls: asked.extend(name for name, _ in calls) or call(calls))
    world.chain.mine(3)
    world.send(world.provider, "registry", "allot", world.node.address, world.pool_id, CREDIT)
    index_chain(world.coordinator)
    assert "eth_getBlockByNumber" in asked and "eth_getLogs" not in asked


@pytest.mark.parametrize("change", [{"logIndex": hex(2**64)}, {"blockNumber": "0x0"}])
def test_a_log_that_cant_be_is_waited_out(
    world: World, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    rpc, kept = world.contracts.client.rpc, mirrors(world.coordinator)
    world.send(world.provider, "registry", "allot", world.node.address, world.pool_id, CREDIT)
    call = rpc.call

    def lying(method: str, *params: Any) -> Any:
        answer = call(method, *params)
        return [log | change for log in answer] if method == "eth_getLogs" else answer

    with monkeypatch.context() as patched:
        patched.setattr(rpc, "call", lying)
        with pytest.raises(ChainError):
            index_chain(world.coordinator)
    assert mirrors(world.coordinator) == kept
    index_chain(world.coordinator)
    assert mirrors(world.coordinator) != kept


def test_other_contracts_at_the_same_addresses_are_refused_and_nothing_is_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a local chain that was started anew: no block is the one that was kept, and the salt is another."""
    kept = mirrors(world.coordinator)
    with world.coordinator.writing() as session:
        for block in session.scalars(select(ChainBlock)):
            block.block_hash = number_hash(block.number)
    monkeypatch.setattr(world.contracts, "salt", "0x" + "77" * 32)
    with pytest.raises(WrongChain, match="deployed again"):
        index_chain(world.coordinator)
    assert mirrors(world.coordinator) == kept


def test_downtime_is_made_up_for_in_ranges_that_the_node_answers_for(
    world: World, tmp_path: Path, empty_database: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.chain.mine(40)
    index_chain(world.coordinator)
    client, asked = ChainClient(world.contracts.client.rpc, CHAIN_ID), []
    call = client.rpc.call

    def limited(method: str, *params: Any) -> Any:
        if method == "eth_getLogs":
            span = int(params[0]["toBlock"], 16) - int(params[0]["fromBlock"], 16) + 1
            asked.append(span)
            if span > 7:
                raise NodeRefused(method, -32005, "query returned more than 10000 results")
        return call(method, *params)

    monkeypatch.setattr(client.rpc, "call", limited)
    monkeypatch.setattr(world.contracts, "client", client)
    other = fresh_coordinator(world, tmp_path / "other", empty_database)
    index_chain(other)
    assert mirrors(other) == mirrors(world.coordinator)
    assert max(asked) > 7
    assert len([span for span in asked if span > 7]) < len(asked) / 2
    other.engine.dispose()


def test_old_headers_are_dropped_and_a_deeper_reorg_replays_everything(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "KEPT_BLOCKS", 2)
    kept = mirrors(world.coordinator)
    base = world.contracts.client.head().number
    world.send(world.provider, "registry", "allot", world.node.address, world.pool_id, CREDIT)
    world.chain.mine(4)
    index_chain(world.coordinator)
    with world.coordinator.reading() as session:
        assert len(session.scalars(select(ChainBlock)).all()) == 2
    reorg(world, world.contracts.client.head().number - base)
    index_chain(world.coordinator)
    assert mirrors(world.coordinator) == kept


def test_a_release_must_be_the_trainers_and_what_the_chain_has(world: World) -> None:
    client = world.client()
    message = WeightsRelease(pool_id=world.pool_id, policy_version=0, manifest_hash=number_hash(0))
    assert client.weights(0).release.message == message
    assert client.weights(0).beacon_hash == world.version(0).beacon_hash
    forged = Signed[WeightsRelease].by(world.node, message, world.domain)
    with pytest.raises(Exception, match="isn't signed by"):
        client.announce_weights(forged)
    other = message.model_copy(update={"manifest_hash": number_hash(9)})
    with pytest.raises(Exception, match="another manifest"):
        client.announce_weights(Signed[WeightsRelease].by(world.trainer, other, world.domain))


@pytest.mark.parametrize("is_the_same", [True, False])
def test_a_version_that_a_reorg_moved_is_announced_still(world: World, is_the_same: bool) -> None:
    base = world.contracts.client.head().number
    world.publish(1)
    with world.coordinator.reading() as session:
        announced = weights_view(session, world.pool_id, 1).release
    reorg(world, world.contracts.client.head().number - base)
    index_chain(world.coordinator)
    with world.coordinator.reading() as session, pytest.raises(NotFound):
        weights_view(session, world.pool_id, 1)
    manifest_hash = announced.message.manifest_hash if is_the_same else number_hash(9)
    world.send(world.trainer, "ledger", "publishWeights", world.pool_id, 1, manifest_hash)
    index_chain(world.coordinator)
    world.clock.seconds += 60
    world.run_until(lambda: world.version(1).beacon_hash is not None, [seal_versions, send_outbox])
    with world.coordinator.reading() as session:
        if is_the_same:
            assert weights_view(session, world.pool_id, 1).release == announced
        else:
            with pytest.raises(NotFound, match="isn't announced"):
                weights_view(session, world.pool_id, 1)


def test_a_version_that_somebody_else_sealed_is_not_sealed_again(world: World) -> None:
    world.publish(1, sealed=False)
    world.chain.mine(3)
    index_chain(world.coordinator)
    seal_versions(world.coordinator)
    world.send(world.provider, "ledger", "sealVersion", world.pool_id, 1)
    nonce = world.contracts.client.transaction_count(world.coordinator.signer.address)
    for _ in range(2):
        send_outbox(world.coordinator)
    assert world.contracts.client.transaction_count(world.coordinator.signer.address) == nonce
    assert not world.outbox(CallState.QUEUED) and not world.outbox(CallState.SENT)


def test_a_release_before_its_confirmations_is_to_be_sent_again(world: World) -> None:
    world.pool(confirmations=3)
    with pytest.raises(Rejected) as refused:
        world.publish(1)
    assert refused.value.reason is RejectReason.RATE_LIMITED
    world.chain.mine(3)
    message = WeightsRelease(pool_id=world.pool_id, policy_version=1, manifest_hash=number_hash(1))
    world.client().announce_weights(Signed[WeightsRelease].by(world.trainer, message, world.domain))
    assert world.client().weights(1).release.message == message
    unpublished = message.model_copy(update={"policy_version": 2})
    with pytest.raises(NotFound):
        world.client().announce_weights(Signed[WeightsRelease].by(world.trainer, unpublished, world.domain))
