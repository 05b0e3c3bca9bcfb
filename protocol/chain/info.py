"""What a chain has of a deployment: whether each contract is the right one, how far the chain is, which pools exist.

In: a node, and the addresses of a deployment file or a Ledger. Out: `ChainInfo`, a document for `proofpool chain info`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from contracts import artifacts
from protocol.chain.client import ChainClient
from protocol.chain.contracts import NAMES, Contracts, Read
from protocol.chain.deployment import Deployment
from protocol.errors import NodeRefused
from protocol.wire import Wei

NUM_POOLS_SHOWN = 20


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True)


class ContractInfo(_Shape):
    """`code` is `ok`, `missing`, `other` (not this version's), or `redeployed`: this version's, not the file's."""

    name: str
    address: str
    code: Literal["ok", "missing", "other", "redeployed"]
    code_hash: str


class PoolSummary(_Shape):
    """A pool as the contracts have it; amounts in base units.

    `unbonded`: the coordinator's bond lacks `missing_bond_wei`, and until it is whole nothing is leased.
    """

    pool_id: int
    state: Literal["leasing", "unbonded", "paused", "closing"]
    creator: str
    coordinator: str
    trainer: str
    price_wei: Wei
    verify_price_wei: Wei
    funds_wei: Wei
    paid_wei: Wei
    min_allotment_wei: Wei
    seat_bond_wei: Wei
    appeal_bond_wei: Wei
    challenge_bond_wei: Wei
    missing_bond_wei: Wei
    num_epochs: int
    num_versions: int
    num_seats: int


class ChainInfo(_Shape):
    """The document of `proofpool chain info --json`."""

    schema_version: Literal[2] = 2
    url: str
    node: str
    chain_id: int
    head_block: int
    head_time: int
    """Chain seconds."""
    base_fee_wei: Wei
    contracts: tuple[ContractInfo, ...] = ()
    salt: str | None = None
    num_pools: int = 0
    pools: tuple[PoolSummary, ...] = ()
    """The newest ones."""

    @property
    def is_sound(self) -> bool:
        return all(contract.code == "ok" for contract in self.contracts)


def look(client: ChainClient, contracts: Contracts | None, expected: Deployment | None) -> ChainInfo:
    """What the node has; `contracts` is None where the code isn't such that it could be asked."""
    head = client.head()
    found: dict[str, object] = {
        "url": client.rpc.url,
        "node": _version(client),
        "chain_id": client.chain_id,
        "head_block": head.number,
        "head_time": head.timestamp,
        "base_fee_wei": head.base_fee_wei,
    }
    if expected is not None:
        hashes: dict[str, str] = {name: one.code_hash for name, one in expected.contracts.items()}
        addresses: dict[str, str] = {name: one.address for name, one in expected.contracts.items()}
        found["contracts"] = tuple(_contracts(client, addresses, hashes))
    elif contracts is not None:
        found["contracts"] = tuple(_contracts(client, {name: contracts.address(name) for name in NAMES}, {}))
    if contracts is not None:
        num_pools = int(contracts.read("pools", "numPools"))
        found |= {"salt": contracts.salt, "num_pools": num_pools, "pools": tuple(_pools(contracts, num_pools))}
    return ChainInfo.model_validate(found)


def _contracts(client: ChainClient, addresses: Mapping[str, str], hashes: Mapping[str, str]) -> Iterator[ContractInfo]:
    artifact_of = {name.lower(): artifacts.load(name) for name in artifacts.CONTRACT_NAMES}
    for name in NAMES:
        code, code_hash = client.code(addresses[name]), client.code_hash(addresses[name])
        is_same = hashes.get(name, code_hash) == code_hash
        state = "missing" if not code else "ok" if is_same else "redeployed"
        if code and not artifact_of[name].matches(code):
            state = "other"
        yield ContractInfo.model_validate(
            {"name": name, "address": addresses[name], "code": state, "code_hash": code_hash}
        )


def _pools(contracts: Contracts, num_pools: int) -> Iterator[PoolSummary]:
    for pool_id in range(max(1, num_pools - NUM_POOLS_SHOWN + 1), num_pools + 1):
        config, pool, num_epochs, num_versions, num_seats = contracts.read_all(
            [
                Read("pools", "configOf", (pool_id,)),
                Read("pools", "poolOf", (pool_id,)),
                Read("ledger", "epochCount", (pool_id,)),
                Read("ledger", "numVersions", (pool_id,)),
                Read("registry", "numSeats", (pool_id,)),
            ]
        )
        bonded_wei = contracts.read("pools", "bondOf", pool_id, config["coordinator"])["amount"]
        missing_bond_wei = max(0, config["coordinator_bond"] - bonded_wei)
        yield PoolSummary(
            pool_id=pool_id,
            state=_state(pool, missing_bond_wei),
            creator=pool["creator"],
            coordinator=config["coordinator"],
            trainer=config["trainer"],
            price_wei=config["price"],
            verify_price_wei=config["verify_price"],
            funds_wei=pool["pool_funds"],
            paid_wei=pool["paid"],
            min_allotment_wei=config["min_allotment"],
            seat_bond_wei=config["seat_bond"],
            appeal_bond_wei=config["appeal_bond"],
            challenge_bond_wei=config["challenge_bond"],
            missing_bond_wei=missing_bond_wei,
            num_epochs=num_epochs,
            num_versions=num_versions,
            num_seats=num_seats,
        )


def _state(pool: Mapping[str, Any], missing_bond_wei: int) -> Literal["leasing", "unbonded", "paused", "closing"]:
    """What keeps it from leasing, if anything (Pools.isLeasing)."""
    if pool["closing_time"]:
        return "closing"
    if pool["paused"]:
        return "paused"
    return "unbonded" if missing_bond_wei else "leasing"


def _version(client: ChainClient) -> str:
    try:
        return str(client.rpc.call("web3_clientVersion"))
    except NodeRefused:  # some don't say
        return "unknown"
