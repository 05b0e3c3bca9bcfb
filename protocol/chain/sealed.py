"""Blocks and receipts as they are hashed: what proves to anybody, from a block's hash alone, that an event happened.

In: JSON-RPC documents of blocks and receipts. Out: a header's RLP, whose Keccak is the block's hash; the nodes of the
receipts' trie that lead to one receipt; and back: what is read of such bytes. Sources: Yellow Paper, section 4.3; EIPs
1559, 2718, 4399, 4788, 4844, 4895, 7685. Whatever a node leaves out or makes up changes the hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rlp
from rlp.exceptions import DecodingError

from protocol.canonical import hex0x, keccak256
from protocol.chain.block import bytes_of, number_of, text_in
from protocol.errors import ChainError, VerificationFailed
from protocol.merkle.patricia import prove, proven_value

_BYTES = (
    *("parentHash", "sha3Uncles", "miner", "stateRoot", "transactionsRoot", "receiptsRoot", "logsBloom"),
    *("extraData", "mixHash", "nonce", "withdrawalsRoot", "parentBeaconBlockRoot", "requestsHash"),
)
_FIELDS = (
    *("parentHash", "sha3Uncles", "miner", "stateRoot", "transactionsRoot", "receiptsRoot", "logsBloom"),
    *("difficulty", "number", "gasLimit", "gasUsed", "timestamp", "extraData", "mixHash", "nonce"),
)
_LATER_FIELDS = (
    *("baseFeePerGas", "withdrawalsRoot", "blobGasUsed", "excessBlobGas", "parentBeaconBlockRoot", "requestsHash"),
)
"""Of later forks, each of which has those before it."""
_PARENT_HASH, _RECEIPTS_ROOT, _NUMBER = 0, 5, 8
MAX_HEADER_BYTES = 2048


@dataclass(frozen=True)
class SealedHeader:
    """What is read of a header."""

    number: int
    block_hash: str
    parent_hash: str
    receipts_root: bytes

    @classmethod
    def of(cls, raw: bytes) -> SealedHeader:
        """Raises VerificationFailed for bytes that are no header."""
        items = _decoded(raw, "a block's header") if len(raw) <= MAX_HEADER_BYTES else None
        if not isinstance(items, list) or len(items) < len(_FIELDS) or not all(isinstance(i, bytes) for i in items):
            raise VerificationFailed("that is no block's header", f"{len(raw)} bytes")
        number = int.from_bytes(items[_NUMBER], "big")
        return cls(number, hex0x(keccak256(raw)), hex0x(items[_PARENT_HASH]), items[_RECEIPTS_ROOT])


@dataclass(frozen=True)
class SealedLog:
    """An event in a receipt."""

    address: str
    topics: tuple[str, ...]
    data: bytes


def seal_header(document: Mapping[str, Any]) -> bytes:
    """The header's RLP. Raises ChainError where it doesn't hash to what the node says."""
    names = [*_FIELDS, *(name for name in _LATER_FIELDS if document.get(name) is not None)]
    raw: bytes = rlp.encode([_item(document, name) for name in names])
    if hex0x(keccak256(raw)) != text_in(document, "hash"):
        why = f"block {document.get('number')!s:.30}: {hex0x(keccak256(raw))}, the node says {document['hash']}"
        raise ChainError("a block's header can't be put together", why, "give another --chain, or a newer proofpool")
    return raw


def seal_receipt(document: Mapping[str, Any]) -> bytes:
    """A receipt as the trie has it. Raises ChainError."""
    logs = [
        [
            bytes_of(log["address"], "address"),
            [bytes_of(topic, "a topic") for topic in log["topics"]],
            bytes_of(log["data"], "data"),
        ]
        for log in document["logs"]
    ]
    numbers = [_quantity(document["status"]), _quantity(document["cumulativeGasUsed"])]
    body: bytes = rlp.encode([*numbers, bytes_of(document["logsBloom"], "logsBloom"), logs])
    kind = _quantity(document.get("type") or "0x0")
    return kind + body


def receipt_path(receipts: Sequence[bytes], index: int, receipts_root: bytes) -> list[bytes]:
    """The trie's nodes down to receipt `index` of a block. Raises ChainError where they aren't that block's."""
    root, path = prove({rlp.encode(number): receipt for number, receipt in enumerate(receipts)}, rlp.encode(index))
    if root != receipts_root:
        why = f"{len(receipts)} receipts have root {hex0x(root)}, the block {hex0x(receipts_root)}"
        raise ChainError("the node's receipts aren't the block's", why, "give another --chain")
    return path


def logs_of_receipt(receipts_root: bytes, index: int, path: Sequence[bytes]) -> list[SealedLog]:
    """The events of receipt `index`, proven by `path`. Raises VerificationFailed."""
    receipt = proven_value(receipts_root, rlp.encode(index), path)
    body = _decoded(receipt[1:] if receipt[0] < 0x80 else receipt, "a receipt")
    try:
        _status, _gas, _bloom, logs = body
        return [SealedLog(hex0x(address), tuple(map(hex0x, topics)), bytes(data)) for address, topics, data in logs]
    except (TypeError, ValueError, AttributeError) as error:
        raise VerificationFailed("that is no receipt", f"{len(receipt)} bytes") from error


def _item(document: Mapping[str, Any], name: str) -> bytes:
    if name in _BYTES:
        return bytes_of(document.get(name), name)
    return _quantity(document.get(name))


def _quantity(value: object) -> bytes:
    """A number as RLP takes it: big-endian, without zeros in front."""
    number = number_of(value, "a quantity")
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _decoded(raw: bytes, what: str) -> Any:
    try:
        return rlp.decode(raw, strict=True)
    except (DecodingError, RecursionError) as error:
        raise VerificationFailed(f"{what} is no RLP", f"{len(raw)} bytes") from error
