"""The coordinator's bond on a real chain: bonded once, and nothing is leased without it."""

from __future__ import annotations

import pytest

from coordinator.api.app import create_app
from coordinator.bond import complete_bond
from coordinator.db.chain import CoordinatorBond
from coordinator.indexer import index_chain
from protocol.chain.info import look
from protocol.cli import run
from protocol.errors import NotEligible, Rejected, TransactionReverted
from protocol.reasons import RejectReason
from testnet.chain.genesis import dev_signers
from tests.integration.conftest import COORDINATOR_BOND_WEI, World, make_coordinator, pool_config
from tests.unit.coordinator.conftest import AppTransport


def bonded_wei(world: World) -> int:
    with world.coordinator.reading() as session:
        bond = session.get(CoordinatorBond, (world.pool_id, world.coordinator.signer.address))
        return bond.amount_wei if bond else 0


def new_pool(world: World) -> int:
    """Another pool of the same coordinator, which has bonded nothing there."""
    config = pool_config(world.rules, world.coordinator.signer, world.trainer)
    receipt = world.send(world.chain.creator, "pools", "createPool", config)
    return int(world.contracts.events(receipt)[0].arguments["pool_id"])


def test_the_mirror_of_a_bond_is_the_chains(world: World) -> None:
    index_chain(world.coordinator)
    bond = world.read("pools", "bondOf", world.pool_id, world.coordinator.signer.address)
    assert bonded_wei(world) == bond["amount"] == COORDINATOR_BOND_WEI
    assert world.read("pools", "isLeasing", world.pool_id)
    assert world.lease()


def test_a_handed_over_key_leases_nothing_until_its_owner_bonds(world: World) -> None:
    successor = dev_signers(9)[8]
    world.send(world.chain.creator, "pools", "proposeKey", world.pool_id, 0, successor.address)
    world.send(successor, "pools", "acceptKey", world.pool_id, 0)
    index_chain(world.coordinator)
    with pytest.raises(Rejected) as refusal:
        world.lease()
    assert (refusal.value.reason, refusal.value.value) == (RejectReason.POOL_PAUSED, "0")
    world.send(world.chain.creator, "credits", "mint", successor.address, COORDINATOR_BOND_WEI)
    complete_bond(world.contracts, world.pool_id, successor)
    index_chain(world.coordinator)
    with pytest.raises(Rejected, match="pool_paused") as refusal:
        world.lease()
    assert refusal.value.threshold == successor.address, "the bond is another's"
    world.coordinator.engine.dispose()
    world.coordinator = make_coordinator(world.coordinator.config, world.contracts, successor, world.clock)
    world.transport = AppTransport(create_app(world.coordinator), world.portal)
    assert world.lease().check(successor.address, world.domain)


def test_what_keeps_a_pool_from_leasing_is_told(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    pool_id, client, creator = new_pool(world), world.contracts.client, world.chain.creator

    def told() -> tuple[str, int]:
        pool = next(one for one in look(client, world.contracts, None).pools if one.pool_id == pool_id)
        assert world.read("pools", "isLeasing", pool_id) == (pool.state == "leasing")
        return pool.state, pool.missing_bond_wei

    assert told() == ("unbonded", COORDINATOR_BOND_WEI)
    url, ledger = client.rpc.url, world.contracts.addresses.ledger
    assert run(["chain", "info", "--chain", url, "--ledger", ledger]) == 0
    said = capsys.readouterr().out
    assert f"  {pool_id}: unbonded (the coordinator's bond lacks " in said and " of a challenge" in said
    world.send(creator, "credits", "mint", world.coordinator.signer.address, COORDINATOR_BOND_WEI)
    complete_bond(world.contracts, pool_id, world.coordinator.signer)
    assert told() == ("leasing", 0)
    world.send(creator, "pools", "setPaused", pool_id, True)
    assert told() == ("paused", 0)
    world.send(creator, "pools", "close", pool_id)
    assert told() == ("closing", 0)


def test_a_bond_is_completed_once_and_only_by_the_pools_coordinator(world: World) -> None:
    key, pool_id = world.coordinator.signer, new_pool(world)
    with pytest.raises(NotEligible, match="hasn't got the credits"):
        complete_bond(world.contracts, pool_id, key)
    world.send(world.chain.creator, "credits", "mint", key.address, COORDINATOR_BOND_WEI)
    with pytest.raises(NotEligible, match="isn't the pool's coordinator"):
        complete_bond(world.contracts, pool_id, world.provider)
    assert complete_bond(world.contracts, pool_id, key).added_wei == COORDINATOR_BOND_WEI
    again = complete_bond(world.contracts, pool_id, key)
    assert (again.added_wei, again.bonded_wei, again.wanted_wei) == (0, COORDINATOR_BOND_WEI, COORDINATOR_BOND_WEI)


def test_a_bond_stays_in_while_the_key_is_the_coordinator(world: World) -> None:
    with pytest.raises(TransactionReverted) as refusal:
        world.send(world.coordinator.signer, "pools", "unbondCoordinator", world.pool_id)
    assert refusal.value.name == "BondBusy"
