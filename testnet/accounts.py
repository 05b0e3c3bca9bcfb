"""Every key of a testnet, from one seed. They are of no value and worth no secrecy.

In: the testnet's seed. Out: `Accounts`, and a keystore file for each role that has a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from protocol.canonical import from_hex0x, keccak256
from protocol.signing import Signer

DEVELOPER_KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
"""First account of the mnemonic "test test … junk", which local chains fund; known to everybody."""
PASSWORD = "testnet"


@dataclass(frozen=True)
class Account:
    """A named key."""

    name: str
    secret: bytes

    @property
    def signer(self) -> Signer:
        return Signer(self.secret)

    @property
    def address(self) -> str:
        return self.signer.address


@dataclass(frozen=True)
class Provider:
    """A cold key and the hot key of its one node; `cheat` names what it does wrong, if anything."""

    owner: Account
    node: Account
    cheat: str | None = None

    @property
    def name(self) -> str:
        return self.node.name


@dataclass(frozen=True)
class Accounts:
    operator: Account
    coordinator: Account
    log: Account
    """Not an account of the chain: the Ed25519 seed that the coordinator signs checkpoints with."""
    trainer: Account
    providers: tuple[Provider, ...]
    validators: tuple[Account, ...]

    @classmethod
    def of(cls, seed: int, num_workers: int, num_verifiers: int, cheats: tuple[str, ...]) -> Accounts:
        """Keys of honest workers 0…, then of one worker for each entry of `cheats`."""
        kinds = [None] * num_workers + list(cheats)
        return cls(
            operator=Account("operator", from_hex0x(DEVELOPER_KEY)),
            coordinator=_account(seed, "coordinator"),
            log=_account(seed, "log"),
            trainer=_account(seed, "trainer"),
            providers=tuple(
                Provider(_account(seed, f"provider-{i}"), _account(seed, f"worker-{i}"), kind)
                for i, kind in enumerate(kinds)
            ),
            validators=tuple(_account(seed, f"verifier-{i}") for i in range(num_verifiers)),
        )

    @property
    def cheaters(self) -> tuple[Provider, ...]:
        return tuple(provider for provider in self.providers if provider.cheat)

    @property
    def with_gas(self) -> tuple[Account, ...]:
        """All that send transactions, but for the operator, who is funded by the chain."""
        owners = [provider.owner for provider in self.providers]
        return (self.coordinator, self.trainer, *owners, *self.validators)


def _account(seed: int, name: str) -> Account:
    return Account(name, keccak256(f"proofpool testnet {seed} {name}".encode()))


def keystore_path(folder: Path, account: Account) -> Path:
    return folder / f"{account.name}.json"
