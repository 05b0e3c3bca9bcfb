"""Why a mined transaction had no effect: a receipt says only that it failed.

In: the transaction and its receipt. Out: `TransactionReverted` with the contract's decoded custom error, from the
node's trace of it where the node gives one (geth, anvil), else from the same call on the state that is nearest.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.chain.block import Receipt
from protocol.chain.client import ChainClient
from protocol.chain.transaction import SignedTransaction
from protocol.errors import ChainError, NodeRefused, TransactionReverted

TRACER = {"tracer": "callTracer", "tracerConfig": {"onlyTopCall": True}}


def failure_of(client: ChainClient, signed: SignedTransaction, receipt: Receipt) -> TransactionReverted:
    """What to raise, or to write down, for a receipt that says "failed"."""
    what = f"transaction {receipt.transaction_hash} failed in block {receipt.block_number}"
    if receipt.gas_used >= signed.transaction.gas_limit:
        return TransactionReverted(f"{what}: out of gas", todo=f"it used all of its {receipt.gas_used} gas")
    for reason in _reasons(client, signed, receipt):
        if reason.name:
            return TransactionReverted(f"{what}: {reason.name}", reason.name, reason.arguments)
    return TransactionReverted(what, todo=f"it used {receipt.gas_used} of {signed.transaction.gas_limit} gas")


def _reasons(client: ChainClient, signed: SignedTransaction, receipt: Receipt) -> Iterator[TransactionReverted]:
    """What the node has to say, best source first; a node that doesn't keep the state says nothing."""
    if (traced := _traced(client, receipt.transaction_hash)) is not None:
        yield traced
    # On the block itself what went before in it is done, on its parent nothing of it is.
    for block in (receipt.block_number, receipt.block_number - 1):
        if (refused := _replayed(client, signed, block)) is not None:
            yield refused


def _traced(client: ChainClient, transaction_hash: str) -> TransactionReverted | None:
    try:
        trace = client.rpc.call("debug_traceTransaction", transaction_hash, TRACER)
    except ChainError:  # few nodes trace for everybody
        return None
    if not isinstance(trace, dict) or "error" not in trace:
        return None
    error = client.explain(NodeRefused("debug_traceTransaction", 3, "execution reverted", trace.get("output")))
    return error if isinstance(error, TransactionReverted) else None


def _replayed(client: ChainClient, signed: SignedTransaction, block: int) -> TransactionReverted | None:
    call = signed.transaction
    try:
        if call.to is None:
            client.estimate_gas(signed.sender, None, call.data, call.value_wei)
        else:
            client.call(call.to, call.data, sender=signed.sender, value_wei=call.value_wei, block=block)
    except TransactionReverted as error:
        return error
    except ChainError:  # the state of that block is gone
        return None
    return None
