"""Many transactions of many accounts at once, for setting a chain up in as few blocks as possible.

In: calls by account, in order. Out: receipts, after all are mined. Roles send theirs one by one through
`protocol/chain/lane.py`; here the nonces of a fresh chain are known in advance.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from protocol.chain.block import Receipt
from protocol.chain.client import ChainClient
from protocol.chain.transaction import SignedTransaction, Transaction
from protocol.clock import Clock
from protocol.errors import ChainError, TransactionReverted
from protocol.signing import Signer

GWEI = 10**9
TIP_WEI = GWEI
MAX_FEE_WEI = 100 * GWEI
POLL_SECONDS = 0.05
DEADLINE_SECONDS = 60.0
BLOCK_SECONDS = 15.0
"""How long a chain that ticks may take for a block."""


@dataclass(frozen=True)
class Call:
    """A transaction to be; `to` is None for a deployment.

    The gas limit is set by hand, since what the call builds on may not be mined yet.
    """

    sender: Signer
    to: str | None
    data: bytes = b""
    value_wei: int = 0
    gas_limit: int = 1_000_000


def send_together(client: ChainClient, clock: Clock, calls: Iterable[Call]) -> list[Receipt]:
    """Hand all in, each account's in order, then wait for all. Raises TransactionReverted for the first that failed."""
    nonces: dict[str, int] = {}
    sent = []
    for call in calls:
        address = call.sender.address
        nonce = nonces.setdefault(address, client.transaction_count(address, "pending"))
        signed = Transaction(
            client.chain_id, nonce, TIP_WEI, MAX_FEE_WEI, call.gas_limit, call.to, call.value_wei, call.data
        ).sign(call.sender)
        client.send_raw(signed.raw)
        nonces[address] = nonce + 1
        sent.append(signed)
    return [_wait(client, clock, signed) for signed in sent]


def check_ticking(client: ChainClient, clock: Clock) -> None:
    """Time on chain goes on without transactions. Raises ChainError where no block comes by itself."""
    never, started, first = threading.Event(), clock.now(), client.head().number
    while client.head().number == first:
        if clock.now() - started > BLOCK_SECONDS:
            raise ChainError(
                "the chain makes no blocks by itself",
                f"still at block {first} after {BLOCK_SECONDS:.0f} s",
                "start it with a block time, such as `anvil --block-time 1`",
            )
        clock.wait(never, POLL_SECONDS)


def _wait(client: ChainClient, clock: Clock, signed: SignedTransaction) -> Receipt:
    never, started = threading.Event(), clock.now()
    while (receipt := client.receipt(signed.transaction_hash)) is None:
        if clock.now() - started > DEADLINE_SECONDS:
            raise ChainError(
                "a transaction isn't mined in time", signed.transaction_hash, "check that the chain makes blocks"
            )
        clock.wait(never, POLL_SECONDS)
    if not receipt.succeeded:
        call = signed.transaction
        if call.to is not None:
            client.call(
                call.to, call.data, sender=signed.sender
            )  # raises with the contract's reason, if it still refuses
        raise TransactionReverted(
            f"a set-up transaction failed: {signed.transaction_hash}", todo="read the chain's log"
        )
    return receipt
