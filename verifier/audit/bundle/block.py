"""A bundle anchored by a block: whoever trusts one block's hash needs no node, and nobody's word, for the log's head.

    trusted hash ─▶ headers, back to the epoch's block ─▶ its receipts' root ─▶ a receipt ─▶ EpochCommitted ─▶ head

In: a node, which is asked once (`prove_block`); later a bundle, a number and a hash. Out: `BlockProof`; the head of the
log that the chain had by that block. The headers hash into each other, so a node that lies makes no proof.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from protocol.bundle import BlockProof, ProofBundle
from protocol.canonical import from_hex0x, hex0x, is_hash32
from protocol.chain.contracts import Contracts, abi_of
from protocol.chain.rpc import quantity
from protocol.chain.sealed import SealedHeader, logs_of_receipt, receipt_path, seal_header, seal_receipt
from protocol.errors import ChainError, NotFound, UsageError, VerificationFailed
from verifier.audit.bundle.ground import KnownHead

MAX_HEADERS = 2048
"""Between the epoch's block and the trusted one; with a block each 12 s some seven hours."""
HEADERS_AT_ONCE = 100
EVENT = "EpochCommitted"


def parse_block(text: str) -> tuple[int, str]:
    """`NUMBER:HASH`. Raises UsageError."""
    number, _, block_hash = text.partition(":")
    if not re.fullmatch("[0-9]{1,16}", number) or not is_hash32(block_hash.lower()):
        why = f"{text[:200]}: a number, then 0x and 64 hexadecimal digits"
        raise UsageError("a trusted block is NUMBER:HASH", why, "copy both from an explorer or a node that you trust")
    return int(number), block_hash.lower()


def prove_block(
    contracts: Contracts, pool_id: int, number: int | None = None, epoch: int | None = None
) -> tuple[BlockProof, KnownHead]:
    """That by block `number` (None: the newest) the chain had this head of the pool's log: the newest, or `epoch`'s.

    Raises NotFound where it wasn't committed in the `MAX_HEADERS` blocks before.
    """
    client = contracts.client
    number = client.head().number if number is None else number
    ledger = contracts.address("ledger")
    topics = ([abi_of("ledger").topic(EVENT)], [_topic(pool_id)], None if epoch is None else [_topic(epoch)])
    logs = list(client.logs([ledger], max(0, number - MAX_HEADERS + 1), number, topics))
    if not logs:
        why = f"pool {pool_id}, blocks {max(0, number - MAX_HEADERS + 1)} to {number}"
        todo = "give --block NUMBER of a block after an epoch's, or have one closed"
        raise NotFound("no epoch was committed shortly before that block", why, todo)
    receipts = _receipts(contracts, logs[-1].block_number)
    index = next(i for i, one in enumerate(receipts) if one["transactionHash"] == logs[-1].transaction_hash)
    headers = _headers(contracts, logs[-1].block_number, number)
    root = SealedHeader.of(headers[0]).receipts_root
    path = receipt_path([seal_receipt(one) for one in receipts], index, root)
    proof = BlockProof(headers=tuple(map(hex0x, headers)), transaction_index=index, path=tuple(map(hex0x, path)))
    last = SealedHeader.of(headers[-1])
    return proof, head_at_block(proof, ledger, pool_id, last.number, last.block_hash)


def known_by_block(bundle: ProofBundle, number: int, block_hash: str, ledger: str | None) -> KnownHead:
    """The head that a bundle proves from a block that is trusted. Raises UsageError, VerificationFailed."""
    if bundle.block is None:
        todo = "make one with `proofpool audit bundle HASH --out FILE --chain URL`"
        raise UsageError("this bundle leads to no block", "it was made without a chain", todo)
    return head_at_block(
        bundle.block, ledger or bundle.chain.contracts.ledger, bundle.chain.pool_id, number, block_hash
    )


def head_at_block(proof: BlockProof, ledger: str, pool_id: int, number: int, block_hash: str) -> KnownHead:
    """Raises VerificationFailed where the block isn't the trusted one, or doesn't lead to a head of this pool's log."""
    headers = [SealedHeader.of(from_hex0x(raw)) for raw in proof.headers]
    for parent, child in pairwise(headers):
        if (child.parent_hash, child.number) != (parent.block_hash, parent.number + 1):
            raise VerificationFailed("the headers are no chain", f"block {child.number} doesn't follow {parent.number}")
    found = next((header for header in headers if header.number == number), None)
    if found is None:
        why = f"block {number}; it has {headers[0].number} to {headers[-1].number}"
        todo = f"`proofpool audit bundle HASH --out FILE --chain URL --block {number}` makes one that does"
        raise VerificationFailed("the bundle doesn't lead to this block", why, todo)
    if found.block_hash != block_hash:
        raise VerificationFailed("the bundle has another block", f"{number} is {found.block_hash}, not {block_hash}")
    logs = logs_of_receipt(headers[0].receipts_root, proof.transaction_index, [from_hex0x(node) for node in proof.path])
    abi = abi_of("ledger")
    for log in reversed(logs):
        event = abi.decode_event(log.topics, log.data) if log.address == ledger else None
        if event is not None and event.name == EVENT and event.arguments["pool_id"] == pool_id:
            return KnownHead(event.arguments["epoch"], event.arguments["size"], event.arguments["root"])
    raise VerificationFailed("the receipt commits no epoch of this pool", f"pool {pool_id}, Ledger {ledger}")


def _topic(number: int) -> str:
    return hex0x(number.to_bytes(32, "big"))


def _receipts(contracts: Contracts, number: int) -> list[Any]:
    rpc = contracts.client.rpc
    block = rpc.call("eth_getBlockByNumber", quantity(number), False)
    found = rpc.batch([("eth_getTransactionReceipt", (one,)) for one in block["transactions"]])
    if None in found:
        raise ChainError("the node lacks receipts of a block that it has", f"block {number}", "give another --chain")
    return found


def _headers(contracts: Contracts, first: int, last: int) -> Sequence[bytes]:
    sealed: list[bytes] = []
    for start in range(first, last + 1, HEADERS_AT_ONCE):
        numbers = range(start, min(start + HEADERS_AT_ONCE, last + 1))
        documents = contracts.client.rpc.batch([("eth_getBlockByNumber", (quantity(n), False)) for n in numbers])
        if None in documents:
            raise NotFound("the chain isn't that long", f"block {last}", "give --block a block that is there")
        sealed += map(seal_header, documents)
    return sealed
