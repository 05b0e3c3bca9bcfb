"""When blocks of the embedded chain are made: one at each transaction, or one an interval.

In: transactions, the wall clock, and what tests ask for (`evm_mine`, `evm_increaseTime`). Out: blocks, their
timestamps never falling. An interval of 0 makes a block for each transaction at once.
"""

from __future__ import annotations

import threading

from protocol.chain.rpc import quantity
from protocol.clock import Clock
from testnet.chain.evm import EmbeddedChain


class Producer:
    """The one who makes blocks; `lock` guards the chain against the server's threads."""

    def __init__(self, chain: EmbeddedChain, clock: Clock, interval_seconds: float) -> None:
        self.lock = threading.Lock()
        self._chain = chain
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._is_automine = interval_seconds == 0
        self._offset_seconds = 0
        self._next_timestamp: int | None = None
        self._offset_at: dict[int, int] = {}

    def run(self, stop: threading.Event) -> None:
        """Make a block an interval until `stop` is set."""
        while self._interval_seconds and not self._clock.wait(stop, self._interval_seconds):
            with self.lock:
                self.mine_now()

    def send(self, raw: bytes) -> str:
        """Hand in a transaction; where blocks follow transactions, mine it."""
        transaction_hash = self._chain.send(raw)
        if self._is_automine:
            self.mine_now()
        return transaction_hash

    def mine_now(self) -> str:
        """evm_mine."""
        timestamp = self._next_timestamp or int(self._clock.now()) + self._offset_seconds
        self._next_timestamp = None
        self._chain.mine(timestamp)
        return "0x0"

    def reorg(self, num_blocks: int) -> None:
        """anvil_reorg: as many empty blocks instead of the newest ones, at the same times."""
        for timestamp in self._chain.drop(num_blocks):
            self._chain.mine(timestamp)

    def snapshot(self) -> int:
        """evm_snapshot, of the time too."""
        number = self._chain.snapshot()
        self._offset_at[number] = self._offset_seconds
        return number

    def revert(self, snapshot: int) -> bool:
        """evm_revert: later blocks have the times that they would have had then."""
        if not self._chain.revert(snapshot):
            return False
        self._offset_seconds = self._offset_at[snapshot]
        return True

    def increase_time(self, seconds: int) -> int:
        """Move the time of later blocks ahead, from the head's if it is ahead of the clock; returns by how much."""
        now = int(self._clock.now())
        self._offset_seconds = max(self._offset_seconds, self._chain.timestamp - now) + seconds
        return self._offset_seconds

    def set_next_timestamp(self, timestamp: int) -> str:
        self._offset_seconds += timestamp - (int(self._clock.now()) + self._offset_seconds)
        self._next_timestamp = timestamp
        return quantity(timestamp)

    def set_automine(self, is_on: bool) -> bool:
        self._is_automine = is_on
        return True
