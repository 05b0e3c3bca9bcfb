"""Testnets on a chain: their contracts, pool, stakes and seats, also where others were there before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from protocol.chain.client import ChainClient
from protocol.chain.contracts import Contracts
from protocol.clock import SystemClock
from protocol.errors import ChainError
from testnet import profile, transactions
from testnet.accounts import Accounts
from testnet.chain.process import NodeProcess
from testnet.genesis import Genesis, create
from testnet.plan import BASE_MODEL, Plan
from testnet.rules import model_hash
from testnet.rules import testnet_rules as make_rules

PLAN = Plan(num_workers=1, cheats=())
ACCOUNTS = Accounts.of(0, PLAN.num_workers, PLAN.num_verifiers, PLAN.cheats)


@pytest.fixture(scope="session")
def make_testnet() -> Callable[[ChainClient], Genesis]:
    rules = make_rules(BASE_MODEL)

    def make(client: ChainClient) -> Genesis:
        return create(client, SystemClock(), ACCOUNTS, rules, model_hash(BASE_MODEL), PLAN)

    return make


def test_a_chain_that_has_a_testnet_takes_another_of_the_same_seed(
    node: NodeProcess, client: ChainClient, make_testnet: Callable[[ChainClient], Genesis]
) -> None:
    first, second = make_testnet(client), make_testnet(client)
    assert not {first.contracts.ledger, first.salt} & {second.contracts.ledger, second.salt}
    assert second.first_block > first.first_block
    for testnet in (first, second):
        contracts = Contracts.connect(node.url, testnet.contracts.ledger, SystemClock())
        with closing(contracts.client.rpc):
            pool = contracts.read("pools", "poolOf", testnet.pool_id)
            assert pool["pool_funds"] == profile.POOL_FUNDS
            assert contracts.read("registry", "numSeats", testnet.pool_id) == PLAN.num_verifiers
            node_address = ACCOUNTS.providers[0].node.address
            assert contracts.read("registry", "ownerOf", node_address) == ACCOUNTS.providers[0].owner.address


def test_a_chain_that_makes_blocks_only_for_transactions_is_refused(
    client: ChainClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "BLOCK_SECONDS", 0.1)
    with pytest.raises(ChainError, match=r"no blocks by itself.*--block-time"):
        transactions.check_ticking(client, SystemClock())


def test_a_chain_that_ticks_is_taken(
    ticking_node: NodeProcess, make_client: Callable[[NodeProcess], ChainClient]
) -> None:
    transactions.check_ticking(make_client(ticking_node), SystemClock())
