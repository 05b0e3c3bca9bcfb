"""The start of a testnet's chain: contracts, credits, a funded pool, its coordinator's bond, stakes, nodes, seats.

In: a chain, new or in use, and the accounts. Out: `Genesis`, with the contracts' addresses and the pool's id as the
chain tells it; three rounds of transactions, each in one block where the chain has room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from contracts.artifacts import CONTRACT_NAMES, ContractName, load
from contracts.deployment import Addresses, Parameters, init_code, predict_addresses
from protocol.canonical import hex0x, keccak256
from protocol.chain.abi import ContractAbi
from protocol.chain.block import Receipt
from protocol.chain.client import ChainClient
from protocol.clock import Clock
from protocol.errors import ChainError
from protocol.rules import Rules
from protocol.signing import Signer, SigningDomain
from protocol.wire import NodeAuthorization
from testnet import profile
from testnet.accounts import Accounts, Provider
from testnet.plan import Plan
from testnet.transactions import Call, send_together

DEPLOY_GAS = 6_000_000
AUTHORIZATION_SECONDS = 3600


@dataclass(frozen=True)
class Genesis:
    """A set-up chain."""

    chain_id: int
    contracts: Addresses
    salt: str
    pool_id: int
    first_block: int
    """Nothing of this testnet is in an earlier one."""

    @property
    def domain(self) -> SigningDomain:
        return SigningDomain(self.chain_id, self.contracts.ledger, self.salt)


def create(client: ChainClient, clock: Clock, accounts: Accounts, rules: Rules, model_hash: str, plan: Plan) -> Genesis:
    """Deploy and set up everything. The salt follows from the seed and the chain's head, so no two runs share it."""
    operator = accounts.operator.signer
    head = client.head()
    salt = hex0x(keccak256(f"proofpool testnet {plan.seed} {head.block_hash}".encode()))
    nonce = client.transaction_count(operator.address, "pending")
    at = predict_addresses(operator.address, nonce)
    parameters = Parameters(minter=operator.address, unbonding_seconds=profile.UNBONDING_SECONDS, salt=salt)
    config = profile.pool_config(accounts, rules, model_hash, plan.max_async)
    calls = [*_deployments(operator, at, parameters, accounts), _call(operator, at, "Pools", "createPool", config)]
    created = send_together(client, clock, calls)[-1]
    _check_code(client, at)
    genesis = Genesis(client.chain_id, at, salt, _pool_id(created, at.pools), head.number)
    send_together(client, clock, _funds(operator, genesis, accounts))
    send_together(client, clock, _members(genesis, accounts, head.timestamp))
    return genesis


def _deployments(operator: Signer, at: Addresses, parameters: Parameters, accounts: Accounts) -> Iterator[Call]:
    for name in CONTRACT_NAMES:
        yield Call(operator, None, init_code(name, at, parameters), gas_limit=DEPLOY_GAS)
    for account in accounts.with_gas:
        yield Call(operator, account.address, value_wei=profile.GAS_WEI, gas_limit=21_000)


def _pool_id(created: Receipt, pools: str) -> int:
    """What the chain has named the pool. Raises ChainError where it tells of none."""
    abi = ContractAbi(load("Pools").abi)
    events = [abi.decode_event(log.topics, log.data) for log in created.logs if log.address == pools]
    for event in events:
        if event is not None and event.name == "PoolCreated":
            return int(event.arguments["pool_id"])
    raise ChainError("the chain made no pool", f"transaction {created.transaction_hash}", "read the chain's log")


def _funds(operator: Signer, genesis: Genesis, accounts: Accounts) -> Iterator[Call]:
    at = genesis.contracts
    yield _call(operator, at, "Credits", "mint", operator.address, profile.POOL_FUNDS)
    yield _call(operator, at, "Credits", "approve", at.pools, profile.POOL_FUNDS)
    yield _call(operator, at, "Pools", "fund", genesis.pool_id, profile.POOL_FUNDS)
    yield _call(operator, at, "Credits", "mint", accounts.coordinator.address, profile.COORDINATOR_BOND)
    for provider in accounts.providers:
        yield _call(operator, at, "Credits", "mint", provider.owner.address, profile.STAKE)
    for validator in accounts.validators:
        yield _call(operator, at, "Credits", "mint", validator.address, profile.SEAT_BOND)


def _members(genesis: Genesis, accounts: Accounts, now: int) -> Iterator[Call]:
    at = genesis.contracts
    registry_domain = SigningDomain(genesis.chain_id, at.registry, genesis.salt)
    coordinator = accounts.coordinator.signer
    yield _call(coordinator, at, "Credits", "approve", at.pools, profile.COORDINATOR_BOND)
    yield _call(coordinator, at, "Pools", "bondCoordinator", genesis.pool_id, profile.COORDINATOR_BOND)
    for provider in accounts.providers:
        yield from _provider(provider, genesis, registry_domain, now)
    for validator in accounts.validators:
        signer = validator.signer
        yield _call(signer, at, "Credits", "approve", at.registry, profile.SEAT_BOND)
        yield _call(signer, at, "Registry", "stake", profile.SEAT_BOND)
        yield _call(signer, at, "Registry", "bondSeat", genesis.pool_id)


def _provider(provider: Provider, genesis: Genesis, domain: SigningDomain, now: int) -> Iterator[Call]:
    at, owner, node = genesis.contracts, provider.owner.signer, provider.node.signer
    consent = NodeAuthorization(
        provider=owner.address, node=node.address, nonce=0, deadline=now + AUTHORIZATION_SECONDS
    )
    yield _call(owner, at, "Credits", "approve", at.registry, profile.STAKE)
    yield _call(owner, at, "Registry", "stake", profile.STAKE)
    signature = node.sign(consent, domain)
    yield _call(owner, at, "Registry", "addNode", node.address, consent.nonce, consent.deadline, signature)
    yield _call(owner, at, "Registry", "allot", node.address, genesis.pool_id, profile.STAKE)


def _call(sender: Signer, at: Addresses, contract: ContractName, function: str, *arguments: object) -> Call:
    return Call(sender, at.of(contract), ContractAbi(load(contract).abi).encode_call(function, *arguments))


def _check_code(client: ChainClient, at: Addresses) -> None:
    for name in CONTRACT_NAMES:
        if not load(name).matches(client.code(at.of(name))):
            raise ChainError(f"{name} isn't what was deployed", at.of(name), "is another account deploying at once?")
