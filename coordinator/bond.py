"""The coordinator's bond: what it answers with for its promises. Without all of it the pool leases nothing.

In: the mirrors, or the chain itself for who adds to the bond. Out: how much is missing, in base units of the credit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer

from coordinator.config import CoordinatorConfig
from coordinator.context import Coordinator
from coordinator.pool import missing_bond_wei, pool_record
from protocol.chain.contracts import Contracts, Read
from protocol.chain.deployment import connect
from protocol.chain.journal import FILE_NAME, Journal
from protocol.chain.lane import Lane
from protocol.clock import SystemClock
from protocol.config import load_config
from protocol.errors import NotEligible, TransactionReverted
from protocol.keystore import load_signer
from protocol.lock import FolderLock
from protocol.signing import Signer
from protocol.telemetry import get_logger
from protocol.wire import Address, Wei

WeiChange = Annotated[int, PlainSerializer(str, return_type=str, when_used="json")]

TODO = "stop the coordinator, run `proofpool coordinator bond`, start it again"


class BondStatus(BaseModel):
    """What a command found and did: `added_wei` (less than zero: taken back), then `bonded_wei` of `wanted_wei`."""

    model_config = ConfigDict(frozen=True)
    schema_version: Literal[1] = 1
    pool_id: int
    coordinator: Address
    added_wei: WeiChange
    bonded_wei: Wei
    wanted_wei: Wei


def report_bond(coordinator: Coordinator) -> None:
    """Say at the start what keeps a pool from leasing."""
    with coordinator.reading() as session:
        missing_wei = missing_bond_wei(session, pool_record(session, coordinator.config.pool_id))
    if missing_wei:
        get_logger().warning("coordinator.unbonded", missing_wei=str(missing_wei), todo=TODO)


def run_bond(file: Path | None) -> BondStatus:
    """`proofpool coordinator bond`."""
    return _with_key(file, complete_bond)


def run_unbond(file: Path | None) -> BondStatus:
    """`proofpool coordinator unbond`."""
    return _with_key(file, take_back_bond)


def _with_key(file: Path | None, act: Callable[[Contracts, int, Signer, Journal], BondStatus]) -> BondStatus:
    """Only while no coordinator runs, whose transactions come from the same key."""
    config = load_config(CoordinatorConfig, "coordinator", file)
    with FolderLock(config.data_dir, "coordinator"):
        contracts = connect(config.chain_url, SystemClock(), deployment=config.deployment, ledger=config.ledger)
        with closing(contracts.client.rpc), closing(Journal(config.data_dir / FILE_NAME)) as journal:
            signer = load_signer(contracts.client.chain_id, config.keystore, config.password_file)
            return act(contracts, config.pool_id, signer, journal)


def complete_bond(contracts: Contracts, pool_id: int, signer: Signer, journal: Journal | None = None) -> BondStatus:
    """Bond what is missing, from the key's own credits.

    Raises NotEligible where the key isn't the pool's coordinator, or hasn't got the credits.
    """
    found, bond, balance_wei = contracts.read_all(
        [
            Read("pools", "configOf", (pool_id,)),
            Read("pools", "bondOf", (pool_id, signer.address)),
            Read("credits", "balanceOf", (signer.address,)),
        ]
    )
    if found["coordinator"] != signer.address:
        raise NotEligible(
            "this key isn't the pool's coordinator",
            f"{signer.address}, the pool names {found['coordinator']}",
            "use the keystore of the address that the pool names",
        )
    wanted_wei, bonded_wei = found["coordinator_bond"], bond["amount"]
    missing_wei = max(0, wanted_wei - bonded_wei)
    if missing_wei > balance_wei:
        raise NotEligible(
            "the coordinator hasn't got the credits for its bond",
            f"it has {balance_wei} wei; {missing_wei} of {wanted_wei} wei are missing",
            f"send credits to {signer.address}",
        )
    if missing_wei:
        lane = Lane(contracts.client, signer, SystemClock(), journal=journal)
        contracts.send(lane, "credits", "approve", contracts.addresses.pools, missing_wei)
        contracts.send(lane, "pools", "bondCoordinator", pool_id, missing_wei)
    return BondStatus(
        pool_id=pool_id,
        coordinator=signer.address,
        added_wei=missing_wei,
        bonded_wei=bonded_wei + missing_wei,
        wanted_wei=wanted_wei,
    )


def take_back_bond(contracts: Contracts, pool_id: int, signer: Signer, journal: Journal | None = None) -> BondStatus:
    """Give the key back what no open case holds. Raises NotEligible where there is nothing, or it isn't due yet."""
    bond, found = contracts.read_all(
        [Read("pools", "bondOf", (pool_id, signer.address)), Read("pools", "configOf", (pool_id,))]
    )
    free_wei = bond["amount"] - bond["held"]
    if not free_wei:
        raise NotEligible(
            "there is no bond to take back",
            f"{bond['amount']} wei of {signer.address} in pool {pool_id}, {bond['held']} held by open cases",
            "wait until these are closed" if bond["held"] else "check key and pool",
        )
    lane = Lane(contracts.client, signer, SystemClock(), journal=journal)
    try:
        contracts.send(lane, "pools", "unbondCoordinator", pool_id)
    except TransactionReverted as error:
        if error.name != "BondBusy":
            raise
        raise NotEligible(
            "the bond isn't due yet",
            _when(int(str(error.arguments[0]))),
            "it is let go the unbonding time after the key was replaced, or when the pool is over",
        ) from error
    return BondStatus(
        pool_id=pool_id,
        coordinator=signer.address,
        added_wei=-free_wei,
        bonded_wei=bond["held"],
        wanted_wei=found["coordinator_bond"],
    )


def _when(ready_time: int) -> str:
    return "the pool is open, and this key its coordinator" if ready_time >= 2**64 else f"chain time {ready_time}"
