"""One account's transactions, in order: which nonce is whose, and what an earlier process left behind.

    send ─▶ estimate gas ─▶ [lock: nonce, sign, journal, hand to the node] ─▶ wait for the receipt ─▶ Receipt

consumes: calls of one process's threads · produces: mined transactions · waits for: blocks, by the injected clock.
Exactly one lane may use an account at a time: one process, one `Lane`, one journal. A refused call is found out by the
gas estimate, before a nonce is spent. A transaction is in the journal before the node has it: whoever was killed, or
gave up waiting, and sends the same call again, waits for the one that is on its way and sends no second one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from protocol.chain.block import Receipt
from protocol.chain.client import ChainClient
from protocol.chain.journal import Journal, Pending
from protocol.chain.refusals import is_known, is_nonce_used, is_poor, is_uncertain
from protocol.chain.transaction import Transaction
from protocol.chain.watch import LanePolicy, Sending, Watch
from protocol.clock import Clock
from protocol.errors import AccountShared, NodeRefused, TransactionReverted
from protocol.signing import Signer
from protocol.telemetry import get_logger

NUM_NONCE_ATTEMPTS = 3


@dataclass(frozen=True)
class Finished:
    """A call that an earlier process left on its way; `receipt` is None where it had no effect."""

    call: Transaction
    receipt: Receipt | None


class Lane:
    """The transactions of one account.

    Example: `Lane(client, signer, SystemClock()).send(address, abi.encode_call("seal", 1))`. With a journal on disk, a
    kill between any two lines loses and doubles nothing.
    """

    def __init__(
        self,
        client: ChainClient,
        signer: Signer,
        clock: Clock,
        policy: LanePolicy | None = None,
        journal: Journal | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.address = signer.address
        self.stop = stop or threading.Event()
        self._client = client
        self._journal = journal or Journal()
        self._sending = Sending(client, signer, clock, policy or LanePolicy(), self._journal, self.stop)
        self._lock = threading.Lock()
        self._awaited: set[int] = set()
        """Nonces that a thread of this process waits for."""
        self._num_senders = 0

    def send(self, to: str | None, data: bytes, *, value_wei: int = 0, gas_limit: int | None = None) -> Receipt:
        """Send one call and wait until it's mined.

        Raises TransactionReverted where the contract refuses, AccountShared where somebody else uses the account,
        ChainError where it isn't mined in time.
        """
        call = Transaction(self._client.chain_id, 0, 0, 0, gas_limit or 0, to and to.lower(), value_wei, data)
        with self._lock:
            self._num_senders += 1
        try:
            return self._sent(call)
        finally:
            with self._lock:
                self._num_senders -= 1

    def resume(self) -> bool:
        """Hand over again what an earlier process left on its way; for the start of a process. Raises ChainError."""
        with self._lock:
            self._look_after_leftovers(None)
        return True

    def finish(self) -> list[Finished]:
        """Wait for what an earlier process left on its way, and say what became of it. Raises ChainError.

        For a command, before it looks at the chain: what it then does stands on all that was done before.
        """
        with self._lock:
            left = self._unsettled()
            num_used = self._client.transaction_count(self.address) if left else 0
        return [self._finished(pending, num_used) for pending in left]

    def _finished(self, pending: Pending, num_used: int) -> Finished:
        call = pending.newest.transaction
        if pending.nonce < num_used:
            found = self._sending.receipt(pending)
            self._write_off(pending)
            return Finished(call, found[1] if found is not None and found[1].succeeded else None)
        try:
            return Finished(call, Watch(self._sending, self._sending.push(pending)).wait())
        except (TransactionReverted, AccountShared) as error:  # over, and without effect
            get_logger().warning("transaction.without_effect", nonce=pending.nonce, detail=str(error))
            return Finished(call, None)

    def _sent(self, call: Transaction) -> Receipt:
        pending = self._taken_up(call) or self._started(call)
        try:
            return Watch(self._sending, pending).wait()
        finally:
            with self._lock:
                self._awaited.discard(pending.nonce)

    def _taken_up(self, call: Transaction) -> Pending | None:
        """The same call, where an earlier attempt left it on its way."""
        with self._lock:
            found = self._look_after_leftovers(call)
            if found is not None:
                self._awaited.add(found.nonce)
                get_logger().info(
                    "transaction.taken_up", transaction_hash=found.newest.transaction_hash, nonce=found.nonce
                )
            return found

    def _look_after_leftovers(self, call: Transaction | None) -> Pending | None:
        """What nobody waits for: written off where its nonce is used, pushed where it isn't; the one for `call`."""
        left = [pending for pending in self._unsettled() if pending.nonce not in self._awaited]
        num_used = self._client.transaction_count(self.address) if left else 0
        wanted = None
        for pending in left:
            if pending.nonce >= num_used:
                pending = self._sending.push(pending)
            elif call is None or wanted is not None or not pending.is_call(call):
                self._write_off(pending)
                continue
            if call is not None and wanted is None and pending.is_call(call):
                wanted = pending
        return wanted

    def _write_off(self, pending: Pending) -> None:
        """Its nonce is used: by itself, or by somebody else's transaction, which is worth a word."""
        if (found := self._sending.receipt(pending)) is not None:
            get_logger().info(
                "transaction.mined", transaction_hash=found[1].transaction_hash, succeeded=found[1].succeeded
            )
        else:
            get_logger().warning("account.shared", detail=str(self._sending.shared(pending.nonce)))
        self._sending.settle(pending.nonce)

    def _started(self, call: Transaction) -> Pending:
        """Sign with the next nonce and give it to the node; a nonce that is used already is read anew."""
        policy = self._sending.policy
        gas = call.gas_limit or policy.gas_limit(
            self._client.estimate_gas(self.address, call.to, call.data, call.value_wei)
        )
        with self._lock:
            for _ in range(NUM_NONCE_ATTEMPTS):
                pending = self._signed(call.numbered(self._free_nonce(), gas))
                if self._handed_in(pending):
                    self._awaited.add(pending.nonce)
                    return pending
                refused = self._sending.shared(pending.nonce)
                get_logger().warning("account.shared", detail=str(refused))
        raise refused

    def _signed(self, call: Transaction) -> Pending:
        now = self._sending.clock.now()
        head = self._client.head()
        head.check_gas(call.gas_limit)
        priced = self._sending.policy.priced(call, head.base_fee_wei)
        signed = priced.sign(self._sending.signer)
        self._journal.keep(signed, now)
        return Pending((signed,), now)

    def _handed_in(self, pending: Pending) -> bool:
        """Whether the node has it; False where the nonce is somebody else's. Raises ChainError.

        A thread that is alone lets the node tell it when the transaction is mined; others would wait for the lock.
        """
        send = self._client.send_raw_mined if self._num_senders == 1 else self._client.send_raw
        try:
            send(pending.newest.raw)
        except NodeRefused as error:
            if is_known(error):
                return True
            if not is_uncertain(error):
                self._sending.settle(pending.nonce)
            if is_nonce_used(error):
                return False
            if is_poor(error):
                error.todo = f"send coins for gas to {self.address}, then the same again"
            raise
        return True

    def _free_nonce(self) -> int:
        """The node's next one that isn't given to a call of ours which the node may have lost."""
        own = {pending.nonce for pending in self._unsettled()}
        nonce = self._client.transaction_count(self.address, "pending")
        while nonce in own:
            nonce += 1
        return nonce

    def _unsettled(self) -> list[Pending]:
        return self._journal.unsettled(self._client.chain_id, self.address)
