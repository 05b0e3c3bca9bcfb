"""The account that a provider's command speaks for: it looks without a key, and sends with one.

In: `ProviderConfig`. Out: `Wallet`, for as long as the block lasts. A wallet that sends holds its key's journal: a
second command with the same key waits for the first one, and both go through.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.chain.contracts import Contracts, Read
from protocol.chain.deployment import connect
from protocol.chain.journal import Journal, JournalHeld
from protocol.chain.lane import Lane
from protocol.chain.watch import LanePolicy
from protocol.clock import Clock
from protocol.errors import KeyFailure, UsageError
from protocol.keyring import find_key, keys_folder, stated_address
from protocol.keystore import PRIVATE_KEY_VARIABLE, check_private, load_signer, open_keystore
from protocol.passwords import get_password
from protocol.signing import Signer
from worker.provider.config import ProviderConfig

DEFAULT_KEY = "provider.json"
MOST_WAIT_SECONDS = 600.0
REPORT_SECONDS = 30.0
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Wallet:
    """An account of the chain. `lane` is None where there is no key to send with."""

    contracts: Contracts
    address: str
    lane: Lane | None = None

    def read(self, contract: str, function: str, *arguments: Any) -> Any:
        return self.contracts.read(contract, function, *arguments)

    def read_all(self, *reads: Read) -> list[Any]:
        return self.contracts.read_all(reads)

    def time(self) -> int:
        """Chain seconds, of the newest block."""
        return self.contracts.client.head().timestamp


@contextmanager
def looking(config: ProviderConfig, clock: Clock, provider: str | None = None) -> Iterator[Wallet]:
    """Without a password. `provider` names the account; else its keystore does. Raises KeyFailure, ChainError."""
    contracts = connect(config.chain_url, clock, deployment=config.deployment, ledger=config.ledger)
    with closing(contracts.client.rpc):
        yield Wallet(contracts, provider or _stated(config, contracts.client.chain_id))


@contextmanager
def sending(config: ProviderConfig, clock: Clock, policy: LanePolicy, *, may_ask: bool) -> Iterator[Wallet]:
    """With the key. Raises KeyFailure, and JournalHeld while another command holds it for too long."""
    contracts = connect(config.chain_url, clock, deployment=config.deployment, ledger=config.ledger)
    with closing(contracts.client.rpc):
        keystore = _keystore(config)
        signer = _signer(keystore, config, contracts.client.chain_id, may_ask=may_ask)
        with closing(_journal(keystore, clock)) as journal:
            lane = Lane(contracts.client, signer, clock, policy, journal)
            yield Wallet(contracts, signer.address, lane)


def pool_of(config: ProviderConfig) -> int:
    """Raises UsageError where no pool is named."""
    if config.pool_id is None:
        todo = "give --pool (`proofpool chain info` lists them) or --coordinator, or set `pool_id`"
        raise UsageError("no pool is named", "neither --pool nor a coordinator", todo)
    return config.pool_id


def _keystore(config: ProviderConfig) -> Path | None:
    if config.keystore is not None:
        return find_key(config.keystore)
    usual = keys_folder() / DEFAULT_KEY
    return usual if PRIVATE_KEY_VARIABLE not in os.environ and usual.exists() else None


def _signer(keystore: Path | None, config: ProviderConfig, chain_id: int, *, may_ask: bool) -> Signer:
    if keystore is None:
        return load_signer(chain_id, None)
    check_private(keystore)
    return open_keystore(keystore, get_password(str(keystore), config.password_file, may_ask=may_ask))


def _stated(config: ProviderConfig, chain_id: int) -> str:
    """Whose keystore it says it is: enough to look, and whoever sends opens it."""
    keystore = _keystore(config)
    if keystore is None:
        return load_signer(chain_id, None).address
    check_private(keystore)
    if (address := stated_address(keystore)) is None:
        raise KeyFailure("the keystore says no address", str(keystore), "give --provider ADDRESS")
    return address


def _journal(keystore: Path | None, clock: Clock) -> Journal:
    """The key's journal, once no other command has it."""
    started, never = clock.now(), threading.Event()
    reported = started - REPORT_SECONDS
    while True:
        try:
            return Journal.beside(keystore)
        except JournalHeld:
            waited = clock.now() - started
            if waited >= MOST_WAIT_SECONDS:
                raise
            if clock.now() - reported >= REPORT_SECONDS:
                reported = clock.now()
                print(f"waiting for another command that sends with this key, since {waited:.0f} s", file=sys.stderr)
            clock.wait(never, POLL_SECONDS)
