"""What a node tells of the chain: blocks, logs, receipts, as frozen values with our spelling.

In: JSON-RPC objects. Out: numbers as `int`, 32-byte values and addresses as lower-case 0x-hex; or ChainError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocol.canonical import from_hex0x, hex0x
from protocol.errors import ChainError, GasOverBlock

_NUMBER = re.compile("0x[0-9a-fA-F]{1,64}")
MAX_COUNT = 2**63 - 1
"""Blocks, seconds, places and nonces are kept in SQL columns of 64 bits; no chain has more of them."""
_BYTES = re.compile("0x(?:[0-9a-fA-F]{2})*")


@dataclass(frozen=True)
class Block:
    """A block's header, as far as we use it. `timestamp` is in Unix seconds, `base_fee_wei` per gas."""

    number: int
    block_hash: str
    parent_hash: str
    timestamp: int
    base_fee_wei: int
    gas_limit: int
    """The most that its transactions use together; 0 where the node doesn't say, and then it gets none of ours."""
    logs_bloom: bytes = b""
    """Empty where the node gives none."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Block:
        return cls(
            number=count_in(document, "number"),
            block_hash=text_in(document, "hash"),
            parent_hash=text_in(document, "parentHash"),
            timestamp=count_in(document, "timestamp"),
            base_fee_wei=number_of(document.get("baseFeePerGas") or "0x0", "baseFeePerGas"),
            gas_limit=number_of(document.get("gasLimit") or "0x0", "gasLimit"),
            logs_bloom=bytes_of(document.get("logsBloom") or "0x", "logsBloom"),
        )

    def check_gas(self, gas_limit: int) -> None:
        """Raises GasOverBlock for a transaction that no block like this one takes: a node's estimate costs coins."""
        if gas_limit > self.gas_limit:
            why = f"{gas_limit} gas, a block takes {self.gas_limit}"
            raise GasOverBlock(
                "a transaction would take more gas than a block has", why, "ask another node of the chain"
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
            address=text_in(document, "address"),
            topics=tuple(hex0x(bytes_of(topic, "a topic")) for topic in _list_in(document, "topics")),
            data=bytes_of(_member(document, "data"), "data"),
            block_number=count_in(document, "blockNumber"),
            block_hash=text_in(document, "blockHash"),
            log_index=count_in(document, "logIndex"),
            transaction_hash=text_in(document, "transactionHash"),
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
    gas_price_wei: int = 0
    """What was paid per gas; 0 where the node doesn't say it."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Receipt:
        created = _member(document, "contractAddress")
        is_priced = _member(document, "effectiveGasPrice") is not None
        return cls(
            transaction_hash=text_in(document, "transactionHash"),
            block_number=count_in(document, "blockNumber"),
            block_hash=text_in(document, "blockHash"),
            succeeded=number_in(document, "status") == 1,
            gas_used=count_in(document, "gasUsed"),
            contract_address=text_in(document, "contractAddress") if created else None,
            logs=tuple(Log.of(log) for log in _list_in(document, "logs")),
            gas_price_wei=number_in(document, "effectiveGasPrice") if is_priced else 0,
        )


def number_in(document: Mapping[str, Any], key: str) -> int:
    """A quantity of a JSON-RPC object. Raises ChainError where it isn't one."""
    return number_of(_member(document, key), key)


def count_in(document: Mapping[str, Any], key: str) -> int:
    """A quantity of a JSON-RPC object that counts something. Raises ChainError where it isn't one."""
    return count_of(_member(document, key), key)


def text_in(document: Mapping[str, Any], key: str) -> str:
    """A 32-byte value or an address of a JSON-RPC object, in lower case. Raises ChainError where it isn't hex."""
    bytes_of(text := _member(document, key), key)
    return str(text).lower()


def number_of(value: object, what: str) -> int:
    """A quantity as JSON-RPC writes it. Raises ChainError for anything else."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value, 16)
    raise ChainError("the node's answer lacks a number", f"{what} is {value!r:.100}")


def count_of(value: object, what: str) -> int:
    """A quantity that counts something: at most `MAX_COUNT`. Raises ChainError for anything else."""
    if (number := number_of(value, what)) <= MAX_COUNT:
        return number
    raise ChainError("the node's answer counts too far", f"{what} is {value!r:.100}")


def bytes_of(value: object, what: str) -> bytes:
    """Bytes as JSON-RPC writes them. Raises ChainError for anything else."""
    if isinstance(value, str) and _BYTES.fullmatch(value):
        return from_hex0x(value)
    raise ChainError("the node's answer lacks bytes", f"{what} is {value!r:.100}")


def _member(document: object, key: str) -> Any:
    if not isinstance(document, Mapping):
        raise ChainError("the node's answer isn't an object", f"{document!r:.100}, with {key} in it")
    return document.get(key)


def _list_in(document: Mapping[str, Any], key: str) -> list[Any]:
    if not isinstance(items := _member(document, key), list):
        raise ChainError("the node's answer lacks a list", f"{key} is {items!r:.100}")
    return items
