"""What a node tells of the chain: blocks, logs, receipts, as frozen values with our spelling.

In: JSON-RPC objects. Out: numbers as `int`, 32-byte values and addresses as lower-case 0x-hex.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocol.canonical import from_hex0x
from protocol.errors import ChainError


@dataclass(frozen=True)
class Block:
    """A block's header, as far as we use it. `timestamp` is in Unix seconds, `base_fee_wei` per gas."""

    number: int
    block_hash: str
    parent_hash: str
    timestamp: int
    base_fee_wei: int

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Block:
        return cls(
            number=number_in(document, "number"),
            block_hash=document["hash"].lower(),
            parent_hash=document["parentHash"].lower(),
            timestamp=number_in(document, "timestamp"),
            base_fee_wei=int(document.get("baseFeePerGas") or "0x0", 16),
        )


@dataclass(frozen=True)
class Log:
    """One event as the chain keeps it; (block_hash, log_index) names it."""

    address: str
    topics: tuple[str, ...]
    data: bytes
    block_number: int
    block_hash: str
    log_index: int
    transaction_hash: str

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Log:
        return cls(
            address=document["address"].lower(),
            topics=tuple(topic.lower() for topic in document["topics"]),
            data=from_hex0x(document["data"]),
            block_number=number_in(document, "blockNumber"),
            block_hash=document["blockHash"].lower(),
            log_index=number_in(document, "logIndex"),
            transaction_hash=document["transactionHash"].lower(),
        )


@dataclass(frozen=True)
class Receipt:
    """A mined transaction. `contract_address` is set by deployments."""

    transaction_hash: str
    block_number: int
    block_hash: str
    succeeded: bool
    gas_used: int
    contract_address: str | None
    logs: tuple[Log, ...]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Receipt:
        created = document.get("contractAddress")
        return cls(
            transaction_hash=document["transactionHash"].lower(),
            block_number=number_in(document, "blockNumber"),
            block_hash=document["blockHash"].lower(),
            succeeded=number_in(document, "status") == 1,
            gas_used=number_in(document, "gasUsed"),
            contract_address=created.lower() if created else None,
            logs=tuple(Log.of(log) for log in document["logs"]),
        )


def number_in(document: Mapping[str, Any], key: str) -> int:
    """A quantity of a JSON-RPC object. Raises ChainError where it isn't one."""
    try:
        return int(document[key], 16)
    except (KeyError, TypeError, ValueError) as error:
        raise ChainError("the node's answer lacks a number", f"{key} is {document.get(key)!r}") from error
