"""Putting the contracts on a chain: which code, in which order, at which addresses.

The contracts name each other in their constructors and never change, so their addresses are computed before the
first one exists: a deployer's n-th transaction creates keccak256(rlp([deployer, n]))[12:].

In: the deployer's address and nonce, and what the constructors need. Out: `Addresses`. How a transaction is signed
and sent isn't known here: `deploy` is handed a callable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import rlp
import sha3
from eth_abi.abi import encode

from contracts.artifacts import CONTRACT_NAMES, ContractName, load


class DeploymentError(Exception):
    """A contract came to stand at another address than the others were told."""


@dataclass(frozen=True)
class Addresses:
    """Where a deployment's contracts are (lower-case 0x-hex)."""

    credits: str
    registry: str
    pools: str
    ledger: str
    court: str
    jury: str

    def of(self, contract: ContractName) -> str:
        return str(asdict(self)[contract.lower()])


@dataclass(frozen=True)
class Parameters:
    """What the constructors are given besides each other's addresses."""

    minter: str
    """May mint credits, until it hands that over or renounces it."""
    unbonding_seconds: int
    """From the end of a duty until its stake is free; pools must fit their windows into it."""
    salt: str
    """32 bytes as 0x-hex, new for each deployment: part of the domain of every signature."""


def predict_address(deployer: str, nonce: int) -> str:
    """The address of the contract that `deployer` creates with its transaction number `nonce`."""
    digest: bytes = sha3.keccak_256(rlp.encode([_bytes(deployer), nonce])).digest()
    return "0x" + digest[12:].hex()


def predict_addresses(deployer: str, nonce: int) -> Addresses:
    """The addresses of all, if nothing else is sent in between."""
    return Addresses(*(predict_address(deployer, nonce + i) for i in range(len(CONTRACT_NAMES))))


def init_code(contract: ContractName, addresses: Addresses, parameters: Parameters) -> bytes:
    """The data of the transaction that creates `contract`: its code and constructor arguments."""
    artifact = load(contract)
    types = [member["type"] for member in artifact.entry("constructor")["inputs"]]
    return artifact.bytecode + encode(types, _arguments(contract, addresses, parameters))


def deploy(send: Callable[[bytes], str], deployer: str, nonce: int, parameters: Parameters) -> Addresses:
    """Create them all. `send` sends init code from `deployer`, waits, and returns the new contract's address.

    Raises DeploymentError as soon as an address differs: the deployer's nonce wasn't what it was said to be.
    """
    addresses = predict_addresses(deployer, nonce)
    for contract in CONTRACT_NAMES:
        created = send(init_code(contract, addresses, parameters)).lower()
        if created != addresses.of(contract):
            raise DeploymentError(f"{contract} is at {created}, not at {addresses.of(contract)}: wrong nonce {nonce}?")
    return addresses


def _arguments(contract: ContractName, at: Addresses, parameters: Parameters) -> list[object]:
    salt = _bytes(parameters.salt)
    arguments: dict[ContractName, list[object]] = {
        "Credits": [parameters.minter],
        "Registry": [at.credits, at.pools, at.ledger, at.court, at.jury, parameters.unbonding_seconds, salt],
        "Pools": [at.credits, at.registry, at.ledger],
        "Ledger": [at.pools, at.registry, at.court, at.jury, salt],
        "Court": [at.credits, at.registry, at.pools, at.ledger, at.jury],
        "Jury": [at.credits, at.registry, at.pools, at.ledger, at.court],
    }
    return arguments[contract]


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))
