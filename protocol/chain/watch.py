"""One nonce until it is settled: wait for a receipt, push what is stuck, notice who takes the nonce away.

In: a `Pending` that the node has. Out: the receipt of whichever version was mined. A node that doesn't answer is waited
for, and said to be; the deadline ends the wait and leaves the transaction in the journal, since it may still be mined.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from protocol.chain.block import Receipt
from protocol.chain.client import ChainClient
from protocol.chain.failure import failure_of
from protocol.chain.fees import FeePolicy
from protocol.chain.journal import Journal, Pending
from protocol.chain.refusals import is_known, is_nonce_used
from protocol.chain.transaction import SignedTransaction, Transaction
from protocol.clock import Clock
from protocol.errors import AccountShared, ChainError, NodeRefused
from protocol.signing import Signer
from protocol.telemetry import get_logger

FIRST_POLL_SECONDS = 0.02
LONGEST_POLL_SECONDS = 0.5
REPORT_SECONDS = 30.0
NUM_LOOKS = 3
"""A nonce that is used without one of our receipts is looked at this often: nodes behind one address may differ."""


@dataclass(frozen=True)
class LanePolicy(FeePolicy):
    """What a transaction may cost and how long it may take."""

    stuck_seconds: float = 30.0
    """After this long without a receipt it is replaced at a higher fee."""
    deadline_seconds: float = 300.0


@dataclass(frozen=True)
class Sending:
    """What everything that sends from one account works with."""

    client: ChainClient
    signer: Signer
    clock: Clock
    policy: LanePolicy
    journal: Journal
    stop: threading.Event

    @property
    def address(self) -> str:
        return self.signer.address

    def settle(self, nonce: int) -> None:
        self.journal.settle(self.client.chain_id, self.address, nonce)

    def receipt(self, pending: Pending) -> tuple[SignedTransaction, Receipt] | None:
        """Of whichever version is mined."""
        for attempt in pending.attempts:
            if (receipt := self.client.receipt(attempt.transaction_hash)) is not None:
                return attempt, receipt
        return None

    def push(self, pending: Pending) -> Pending:
        """Hand it to the node again, at a higher fee where no block has taken it for a while."""
        now = self.clock.now()
        if self.is_stuck(pending):
            base_fee_wei = self.client.head().base_fee_wei
            raised = self.policy.raised(pending.newest.transaction, base_fee_wei).sign(self.signer)
            self.journal.keep(raised, now)
            pending = pending.with_attempt(raised, now)
        try:
            self.client.send_raw(pending.newest.raw)
        except NodeRefused as error:
            if not (is_known(error) or is_nonce_used(error) or "underpriced" in error.message.lower()):
                raise
        return pending

    def fill_gap(self, nonce: int) -> None:
        """Take the first nonce that is missing before `nonce` with a transaction that does nothing.

        A reorg has dropped what was there, or the node had counted too far. Signed again with a lower nonce the call
        could be mined twice: the node may keep it until the gap is closed.
        """
        missing = self.client.transaction_count(self.address, "pending")
        own = {pending.nonce for pending in self.journal.unsettled(self.client.chain_id, self.address)}
        if missing >= nonce or missing in own:
            return
        gas = self.policy.gas_limit(self.client.estimate_gas(self.address, self.address, b""))
        nothing = Transaction(self.client.chain_id, missing, 0, 0, gas, self.address)
        head = self.client.head()
        head.check_gas(gas)
        filler = self.policy.priced(nothing, head.base_fee_wei).sign(self.signer)
        self.journal.keep(filler, self.clock.now())
        get_logger().warning("transaction.gap_filled", nonce=missing, transaction_hash=filler.transaction_hash)
        try:
            self.client.send_raw(filler.raw)
        except NodeRefused:  # whatever else the nonce went to: there is no gap
            self.settle(missing)

    def is_stuck(self, pending: Pending) -> bool:
        return self.clock.now() - pending.sent_time >= self.policy.stuck_seconds

    def shared(self, nonce: int) -> AccountShared:
        """Said to whoever lost the nonce."""
        return AccountShared(
            "another process sends with this account",
            f"nonce {nonce} of {self.address} went to a transaction that isn't from here",
            "stop the other one, or give each process a key of its own; this call isn't sent, and can be tried again",
        )


class Watch:
    """Example: `Watch(sending, pending).wait()`."""

    def __init__(self, sending: Sending, pending: Pending) -> None:
        self._sending = sending
        self._pending = pending
        self._started = sending.clock.now()
        self._reported = self._started - REPORT_SECONDS
        self._num_looks = 0

    def wait(self) -> Receipt:
        """Raises TransactionReverted where it failed, AccountShared where it never can be mined, ChainError."""
        pause = FIRST_POLL_SECONDS
        while True:
            if (found := self._look()) is not None:
                return self._settled(*found)
            waited = self._sending.clock.now() - self._started
            if waited >= self._sending.policy.deadline_seconds or self._sending.stop.is_set():
                raise self._not_mined(waited)
            self._sending.clock.wait(self._sending.stop, pause)
            pause = min(2 * pause, LONGEST_POLL_SECONDS)

    def _look(self) -> tuple[SignedTransaction, Receipt] | None:
        """A receipt, if there is one; what is stuck is pushed."""
        try:
            is_used = self._is_nonce_used()
            if (found := self._sending.receipt(self._pending)) is not None:
                return found
            if is_used:
                self._note_loss()
            elif self._sending.is_stuck(self._pending):
                self._sending.fill_gap(self._pending.nonce)
                self._pending = self._sending.push(self._pending)
        except AccountShared:
            raise
        except ChainError as error:
            self._report(error)
        return None

    def _is_nonce_used(self) -> bool:
        """Asked only once a receipt is overdue, and before the receipt: after it, a block may come in between."""
        if self._sending.clock.now() - self._started < LONGEST_POLL_SECONDS:
            return False
        return self._sending.client.transaction_count(self._sending.address) > self._pending.nonce

    def _note_loss(self) -> None:
        """A used nonce and no receipt of ours. Raises AccountShared once there is no doubt."""
        if any(self._sending.client.is_mined(one.transaction_hash) for one in self._pending.attempts):
            return
        self._num_looks += 1
        if self._num_looks >= NUM_LOOKS:
            self._sending.settle(self._pending.nonce)
            raise self._sending.shared(self._pending.nonce)

    def _settled(self, signed: SignedTransaction, receipt: Receipt) -> Receipt:
        self._sending.settle(self._pending.nonce)
        if not receipt.succeeded:
            raise failure_of(self._sending.client, signed, receipt)
        return receipt

    def _report(self, error: ChainError) -> None:
        """The node doesn't answer: it is waited for, and not in silence."""
        now = self._sending.clock.now()
        if now - self._reported >= REPORT_SECONDS:
            self._reported = now
            get_logger().info(
                "waiting",
                awaited=f"transaction {self._pending.newest.transaction_hash}",
                since_seconds=round(now - self._started, 1),
                why=str(error),
            )

    def _not_mined(self, waited_seconds: float) -> ChainError:
        last = self._pending.newest
        return ChainError(
            "a transaction isn't mined in time",
            f"{last.transaction_hash}, nonce {self._pending.nonce}, after {waited_seconds:.0f} s",
            f"check that blocks are made and that {self._sending.address} can pay for gas; the same call again goes on"
            " waiting for it",
        )
