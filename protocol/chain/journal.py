"""What an account has sent that isn't settled, on disk before the node gets it: a kill loses and doubles nothing.

In: signed transactions. Out: those that an earlier process, or an earlier attempt of this one, didn't see mined. One
SQLite file, held by one process at a time; without a file it is kept in memory, for what a kill may forget. What is
settled is deleted.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from protocol.canonical import from_hex0x
from protocol.chain.transaction import SignedTransaction, Transaction
from protocol.errors import ConfigError
from protocol.telemetry import get_logger

FILE_NAME = "transactions.sqlite3"
_SCHEMA = """CREATE TABLE IF NOT EXISTS attempt (
    id INTEGER PRIMARY KEY,
    chain_id INTEGER NOT NULL,
    sender TEXT NOT NULL,
    nonce INTEGER NOT NULL,
    raw BLOB NOT NULL UNIQUE,
    sent_time REAL NOT NULL
)"""


@dataclass(frozen=True)
class Pending:
    """A nonce that is given to a call, and every version of its transaction, oldest first."""

    attempts: tuple[SignedTransaction, ...]
    sent_time: float
    """Unix seconds at which the newest version was handed over last."""

    @property
    def newest(self) -> SignedTransaction:
        return self.attempts[-1]

    @property
    def nonce(self) -> int:
        return self.newest.transaction.nonce

    def is_call(self, call: Transaction) -> bool:
        """Whether it does the same, whatever its nonce, gas and fees are."""
        own = self.newest.transaction
        return (own.to, own.data, own.value_wei) == (call.to, call.data, call.value_wei)

    def with_attempt(self, signed: SignedTransaction, now: float) -> Pending:
        """With one more version, or the newest one sent again."""
        attempts = self.attempts if signed == self.newest else (*self.attempts, signed)
        return Pending(attempts, now)


class JournalHeld(ConfigError):
    """Another process sends with this account now."""


class Journal:
    """Example: `Lane(client, signer, clock, journal=Journal(config.data_dir / FILE_NAME))`."""

    def __init__(self, file: Path | None = None) -> None:
        """Raises JournalHeld where another process holds the file, ConfigError where it is no journal."""
        self._lock = threading.Lock()
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(file or ":memory:", timeout=0, isolation_level=None, check_same_thread=False)
        try:
            # Held from the first write on, until the process ends however it ends.
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("BEGIN EXCLUSIVE")
            self._db.execute(_SCHEMA)
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self._db.close()
            if "locked" not in str(error):
                raise
            raise JournalHeld(
                "another process sends with this account", f"it holds {file}", "wait for it, or stop it"
            ) from error
        except sqlite3.DatabaseError as error:
            self._db.close()
            todo = "see that nothing of this account is on its way, then move the file away"
            raise ConfigError("the journal of sent transactions is damaged", f"{file}: {error}", todo) from error

    @classmethod
    def beside(cls, keystore: Path | None) -> Journal:
        """For a command that has no data folder: beside the key that it sends with; in memory for a key without a file.

        Where that folder can't be written to it is kept in memory as well, and said to be. A key has one journal,
        whichever links lead to it.
        """
        if keystore is None:
            return cls()
        keystore = keystore.resolve()
        try:
            return cls(keystore.with_name(f"{keystore.name}.{FILE_NAME}"))
        except (OSError, sqlite3.OperationalError) as error:
            get_logger().warning("journal.in_memory", detail=f"{keystore.parent}: {error}; don't kill this command")
            return cls()

    def close(self) -> None:
        self._db.close()

    def keep(self, signed: SignedTransaction, now: float) -> None:
        """A version that is about to be handed over; it is on the disk when this returns."""
        call = signed.transaction
        values = (call.chain_id, signed.sender, call.nonce, from_hex0x(signed.raw), now)
        with self._lock:
            self._db.execute(
                "INSERT INTO attempt (chain_id, sender, nonce, raw, sent_time) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (raw) DO UPDATE SET sent_time = excluded.sent_time",
                values,
            )

    def unsettled(self, chain_id: int, sender: str) -> list[Pending]:
        """What isn't known to be mined, in order of nonces."""
        with self._lock:
            rows = self._db.execute(
                "SELECT nonce, raw, sent_time FROM attempt WHERE chain_id = ? AND sender = ? ORDER BY nonce, id",
                (chain_id, sender),
            ).fetchall()
        by_nonce: dict[int, list[tuple[bytes, float]]] = {}
        for nonce, raw, sent_time in rows:
            by_nonce.setdefault(nonce, []).append((raw, sent_time))
        return [_pending(sender, versions) for versions in by_nonce.values()]

    def settle(self, chain_id: int, sender: str, nonce: int) -> None:
        """Forget a nonce: its transaction is mined, refused, or can never be."""
        with self._lock:
            self._db.execute(
                "DELETE FROM attempt WHERE chain_id = ? AND sender = ? AND nonce = ?", (chain_id, sender, nonce)
            )


def _pending(sender: str, versions: Sequence[tuple[bytes, float]]) -> Pending:
    attempts = tuple(SignedTransaction.parse(raw, sender) for raw, _ in versions)
    return Pending(attempts, max(sent_time for _, sent_time in versions))
