"""Transactions that wait for a block of the embedded chain.

In: decoded transactions. Out: those that may go next: each sender's lowest nonce, in order of arrival. A
transaction with a nonce that waits already replaces the other one if it pays 10 % more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

MIN_BUMP_PERCENT = 10


class Refused(Exception):
    """The node won't take it: a JSON-RPC error's code, message and data."""

    def __init__(self, message: str, code: int = -32000, data: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.data = data


class Mempool:
    """Waiting transactions (py-evm's) by sender and nonce."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[bytes, int], Any] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, transaction: Any, next_nonce: int) -> None:
        """Raises Refused, in the words that other nodes use, since clients tell refusals apart by them."""
        if transaction.nonce < next_nonce:
            raise Refused(f"nonce too low: next nonce {next_nonce}, tx nonce {transaction.nonce}")
        slot = (transaction.sender, transaction.nonce)
        other = self._waiting.get(slot)
        if other is not None and other.hash == transaction.hash:
            raise Refused("already known")
        if other is not None and not _pays_more(transaction, other):
            raise Refused("replacement transaction underpriced")
        self._waiting[slot] = transaction

    def next_nonce(self, sender: bytes, mined_nonce: int) -> int:
        """The nonce after everything that waits without a gap."""
        nonce = mined_nonce
        while (sender, nonce) in self._waiting:
            nonce += 1
        return nonce

    def find(self, transaction_hash: bytes) -> Any:
        """None where it doesn't wait here."""
        return next((t for t in self._waiting.values() if t.hash == transaction_hash), None)

    def ready(self, nonce_of: Callable[[bytes], int]) -> Iterator[Any]:
        """What may be mined next; the caller removes what it takes, and what it can never take."""
        passed: set[bytes] = set()
        while True:
            ready = (
                transaction
                for (sender, nonce), transaction in self._waiting.items()
                if transaction.hash not in passed and nonce == nonce_of(sender)
            )
            transaction = next(ready, None)
            if transaction is None:
                return
            passed.add(transaction.hash)
            yield transaction

    def remove(self, transaction: Any) -> None:
        del self._waiting[(transaction.sender, transaction.nonce)]

    def clear(self) -> None:
        self._waiting.clear()


def _pays_more(new: Any, old: Any) -> bool:
    return all(
        100 * getattr(new, fee) >= (100 + MIN_BUMP_PERCENT) * getattr(old, fee)
        for fee in ("max_fee_per_gas", "max_priority_fee_per_gas")
    )
