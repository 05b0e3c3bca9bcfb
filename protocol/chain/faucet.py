"""Free credits and gas, on test chains only: for a first try, and for whoever sets a local pool up by hand.

    a key of the moment ─▶ gas from the node ─▶ Credits.faucet ─▶ transfer to the address

In: a node, its Credits, an address. Out: `Gift`, once everything is mined. Gas is a balance that a development node
sets when it is asked (anvil, ours, hardhat); where a node doesn't, it takes a key that can pay.
"""

from __future__ import annotations

import secrets
import threading
from typing import Literal

from pydantic import BaseModel, ConfigDict

from protocol.chain.client import ChainClient
from protocol.chain.contracts import Contracts
from protocol.chain.lane import Lane
from protocol.chain.rpc import METHOD_NOT_FOUND, quantity
from protocol.clock import Clock
from protocol.errors import ChainError, NodeRefused, UsageError
from protocol.keystore import LOCAL_CHAIN_IDS
from protocol.signing import Signer
from protocol.wire import Wei

SET_BALANCE = ("anvil_setBalance", "hardhat_setBalance")
OWN_GAS_WEI = 10**18
DEADLINE_SECONDS = 60.0
POLL_SECONDS = 0.05


class Gift(BaseModel):
    """What an address has now, base units; the document of `proofpool chain faucet --json`."""

    model_config = ConfigDict(frozen=True)

    schema_version: Literal[2] = 2
    address: str
    credits_wei: Wei
    gas_wei: Wei


def check_test_chain(chain_id: int) -> None:
    """Raises UsageError elsewhere."""
    if chain_id not in LOCAL_CHAIN_IDS:
        raise UsageError(
            "a faucet is for test chains only",
            f"chain id {chain_id}, not one of {', '.join(map(str, sorted(LOCAL_CHAIN_IDS)))}",
            "on a real chain, buy or earn credits, and gas",
        )


def give(
    contracts: Contracts, address: str, credits_wei: int, gas_wei: int, clock: Clock, signer: Signer | None = None
) -> Gift:
    """Give; `signer` pays the gas of it, and without one the node is asked for that too.

    Raises UsageError off test chains, ChainError where the node gives no gas.
    """
    client = contracts.client
    check_test_chain(client.chain_id)
    if credits_wei:
        if signer is None:
            signer = Signer(secrets.token_bytes(32))
            add_gas(client, signer.address, OWN_GAS_WEI, clock)
        lane = Lane(client, signer, clock)
        contracts.send(lane, "credits", "faucet", credits_wei)
        if signer.address != address:
            contracts.send(lane, "credits", "transfer", address, credits_wei)
    if gas_wei:
        add_gas(client, address, gas_wei, clock)
    balance = int(contracts.read("credits", "balanceOf", address))
    return Gift(address=address, credits_wei=balance, gas_wei=client.balance_wei(address))


def add_gas(client: ChainClient, address: str, amount_wei: int, clock: Clock) -> None:
    """More native balance, from nothing. Raises ChainError where the node doesn't do that."""
    wanted = client.balance_wei(address) + amount_wei
    if not any(_was_set(client, method, address, wanted) for method in SET_BALANCE):
        raise ChainError(
            "this node gives no gas",
            f"{client.rpc.url} has none of {', '.join(SET_BALANCE)}",
            "give --keystore of an account that has some, and send gas from it by hand",
        )
    never, started = threading.Event(), clock.now()
    while client.balance_wei(address) < wanted:
        if clock.now() - started > DEADLINE_SECONDS:
            raise ChainError("the gas doesn't arrive", f"{address} at {client.rpc.url}", "check that blocks are made")
        clock.wait(never, POLL_SECONDS)


def _was_set(client: ChainClient, method: str, address: str, wei: int) -> bool:
    try:
        client.rpc.call(method, address, quantity(wei))
    except NodeRefused as error:
        if error.code == METHOD_NOT_FOUND:
            return False
        raise
    return True
