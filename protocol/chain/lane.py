"""One account's transactions, in order: nonces, fees, waiting, replacing what is stuck.

    send ─▶ estimate gas ─▶ [lock: nonce, sign, hand to the node] ─▶ wait for the receipt ─▶ Receipt

consumes: calls of one process's threads · produces: mined transactions · waits for: blocks, by the injected clock.
Exactly one lane may use an account at a time: one process, one `Lane`. A refused call is found out by the gas
estimate, before a nonce is spent. Nothing is sent twice under two nonces: after a kill, `resend` takes up the
transaction that `before_send` was given to store.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from protocol.chain.block import Receipt
from protocol.chain.client import ChainClient
from protocol.chain.transaction import SignedTransaction, Transaction
from protocol.clock import Clock
from protocol.errors import ChainError, NodeRefused, TransactionReverted
from protocol.signing import Signer

GWEI = 10**9
NUM_NONCE_ATTEMPTS = 3
FIRST_POLL_SECONDS = 0.02
LONGEST_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class LanePolicy:
    """What a transaction may cost and how long it may take."""

    tip_wei: int = GWEI
    """Priority fee per gas."""
    max_fee_wei: int = 500 * GWEI
    """The most per gas, replacements included."""
    gas_margin: float = 1.3
    """Gas limit over the estimate: state moves on until the transaction is mined."""
    stuck_seconds: float = 30.0
    """After this long without a receipt it is replaced at a higher fee."""
    deadline_seconds: float = 300.0


class Lane:
    """The transactions of one account.

    Example: `Lane(client, signer, SystemClock()).send(address, abi.encode_call("seal", 1))`.
    """

    def __init__(self, client: ChainClient, signer: Signer, clock: Clock, policy: LanePolicy | None = None) -> None:
        self.address = signer.address
        self.stop = threading.Event()
        self._client = client
        self._signer = signer
        self._clock = clock
        self._policy = policy or LanePolicy()
        self._lock = threading.Lock()
        self._next_nonce: int | None = None

    def send(
        self,
        to: str | None,
        data: bytes,
        *,
        value_wei: int = 0,
        gas_limit: int | None = None,
        before_send: Callable[[SignedTransaction], None] = lambda _: None,
    ) -> Receipt:
        """Send one call and wait until it's mined.

        `before_send` gets each signed transaction before the node does, to be stored by who must survive a kill.
        Raises TransactionReverted where the contract refuses, ChainError where it isn't mined in time.
        """
        if gas_limit is None:
            estimate = self._client.estimate_gas(self.address, to, data, value_wei)
            gas_limit = int(estimate * self._policy.gas_margin)
        with self._lock:
            signed = self._hand_in(to, data, value_wei, gas_limit, before_send)
        return self._wait(signed)

    def resend(self, signed: SignedTransaction) -> Receipt:
        """Take up a transaction of an earlier process: send the same bytes again, wait as `send` does."""
        self._hand_over(signed)
        return self._wait(signed)

    def _hand_in(
        self,
        to: str | None,
        data: bytes,
        value_wei: int,
        gas_limit: int,
        before_send: Callable[[SignedTransaction], None],
    ) -> SignedTransaction:
        """Sign with the next nonce and give it to the node; a nonce that is used already is read anew."""
        for attempt in range(NUM_NONCE_ATTEMPTS):
            fee = self._fee_wei()
            nonce = self._take_nonce()
            signed = Transaction(
                self._client.chain_id, nonce, min(self._policy.tip_wei, fee), fee, gas_limit, to, value_wei, data
            ).sign(self._signer)
            before_send(signed)
            try:
                self._client.send_raw(signed.raw)
            except ChainError as error:
                if _is_known(error):
                    break
                self._next_nonce = None  # what the node took is unknown: ask it next time
                if not _is_nonce_used(error) or attempt + 1 == NUM_NONCE_ATTEMPTS:
                    raise
            else:
                break
        self._next_nonce = nonce + 1
        return signed

    def _take_nonce(self) -> int:
        if self._next_nonce is None:
            self._next_nonce = self._client.transaction_count(self.address, "pending")
        return self._next_nonce

    def _fee_wei(self) -> int:
        """Twice the base fee and the tip: it stays valid for six full blocks."""
        wanted = 2 * self._client.head().base_fee_wei + self._policy.tip_wei
        return min(wanted, self._policy.max_fee_wei)

    def _wait(self, signed: SignedTransaction) -> Receipt:
        """Poll for the receipt of the transaction or of any replacement."""
        attempts = [signed]
        started = replaced = self._clock.now()
        pause = FIRST_POLL_SECONDS
        while True:
            for attempt in attempts:
                if (receipt := self._client.receipt(attempt.transaction_hash)) is not None:
                    return self._settled(attempt, receipt)
            now = self._clock.now()
            if now - started >= self._policy.deadline_seconds or self.stop.is_set():
                raise self._not_mined(attempts, now - started)
            if now - replaced >= self._policy.stuck_seconds:
                attempts.append(self._replacement(attempts[-1]))
                self._hand_over(attempts[-1])
                replaced = now
            self._clock.wait(self.stop, pause)
            pause = min(2 * pause, LONGEST_POLL_SECONDS)

    def _replacement(self, signed: SignedTransaction) -> SignedTransaction:
        """The same call and nonce at 12.5 % more, which is what nodes ask of a replacement; the same at the limit."""
        old = signed.transaction
        fee = max(-(-old.max_fee_wei * 9 // 8), self._fee_wei())
        tip = -(-old.max_priority_fee_wei * 9 // 8)
        if max(fee, tip) > self._policy.max_fee_wei:
            return signed
        return replace(old, max_fee_wei=fee, max_priority_fee_wei=tip).sign(self._signer)

    def _hand_over(self, signed: SignedTransaction) -> None:
        """Give a transaction to the node that may have it, or a sibling, already."""
        try:
            self._client.send_raw(signed.raw)
        except NodeRefused as error:
            if not (_is_known(error) or _is_nonce_used(error) or "underpriced" in error.message.lower()):
                raise

    def _settled(self, signed: SignedTransaction, receipt: Receipt) -> Receipt:
        if receipt.succeeded:
            return receipt
        call = signed.transaction
        if call.to is not None:
            # The receipt only says "failed". The same call on the same block tells why, where the node keeps its state.
            with contextlib.suppress(NodeRefused):
                self._client.call(call.to, call.data, sender=signed.sender, block=receipt.block_number)
        raise TransactionReverted(
            f"transaction {receipt.transaction_hash} failed in block {receipt.block_number}",
            todo=f"it used {receipt.gas_used} of {call.gas_limit} gas",
        )

    def _not_mined(self, attempts: list[SignedTransaction], waited_seconds: float) -> ChainError:
        with self._lock:
            self._next_nonce = None
        last = attempts[-1]
        return ChainError(
            "a transaction isn't mined in time",
            f"{last.transaction_hash}, nonce {last.transaction.nonce}, after {waited_seconds:.0f} s",
            f"check that blocks are made and that {self.address} can pay for gas",
        )


def _is_known(error: ChainError) -> bool:
    """The node has this very transaction."""
    text = error.message.lower() if isinstance(error, NodeRefused) else ""
    return "already known" in text or "already imported" in text or "known transaction" in text


def _is_nonce_used(error: ChainError) -> bool:
    """Another transaction with this nonce is mined, or waits and pays as much."""
    text = error.message.lower() if isinstance(error, NodeRefused) else ""
    return "nonce too low" in text or "replacement transaction underpriced" in text
