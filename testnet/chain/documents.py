"""JSON-RPC documents of the embedded chain: blocks, transactions, receipts and logs as Ethereum nodes write them.

In: py-evm's headers, transactions and receipts. Out: dicts with 0x-hex values.
"""

from __future__ import annotations

from typing import Any

from protocol.canonical import hex0x, keccak256
from protocol.chain.rpc import quantity

Document = dict[str, Any]


def block_document(header: Any, transaction_hashes: list[str]) -> Document:
    return {
        "number": quantity(header.block_number),
        "hash": hex0x(header.hash),
        "parentHash": hex0x(header.parent_hash),
        "stateRoot": hex0x(header.state_root),
        "transactionsRoot": hex0x(header.transaction_root),
        "receiptsRoot": hex0x(header.receipt_root),
        "sha3Uncles": hex0x(header.uncles_hash),
        "logsBloom": hex0x(header.bloom.to_bytes(256, "big")),
        "difficulty": quantity(header.difficulty),
        "extraData": hex0x(header.extra_data),
        "nonce": hex0x(header.nonce),
        "withdrawalsRoot": hex0x(header.withdrawals_root),
        "blobGasUsed": quantity(header.blob_gas_used),
        "excessBlobGas": quantity(header.excess_blob_gas),
        "parentBeaconBlockRoot": hex0x(header.parent_beacon_block_root),
        "mixHash": hex0x(header.mix_hash),
        "miner": hex0x(header.coinbase),
        "timestamp": quantity(header.timestamp),
        "gasLimit": quantity(header.gas_limit),
        "gasUsed": quantity(header.gas_used),
        "baseFeePerGas": quantity(header.base_fee_per_gas),
        "transactions": transaction_hashes,
    }


def receipt_documents(header: Any, transactions: list[Any], receipts: list[Any]) -> list[Document]:
    """A block's receipts in order; gas and log indexes count from the block's start."""
    documents: list[Document] = []
    gas_before = num_logs = 0
    for index, (transaction, receipt) in enumerate(zip(transactions, receipts, strict=True)):
        where = {"transactionHash": hex0x(transaction.hash)} | _place(header, index)
        documents.append(
            where
            | _parties(transaction)
            | {
                "status": quantity(int(receipt.state_root == b"\x01")),
                "type": "0x2",
                "gasUsed": quantity(receipt.gas_used - gas_before),
                "cumulativeGasUsed": quantity(receipt.gas_used),
                "effectiveGasPrice": quantity(_gas_price(transaction, header)),
                "contractAddress": None if transaction.to else _created_address(transaction),
                "logsBloom": hex0x(receipt.bloom.to_bytes(256, "big")),
                "logs": [_log(log, number, where) for number, log in enumerate(receipt.logs, num_logs)],
            }
        )
        gas_before, num_logs = receipt.gas_used, num_logs + len(receipt.logs)
    return documents


def transaction_documents(header: Any, transactions: list[Any]) -> list[Document]:
    """A block's transactions in order, without their signatures."""
    return [
        {"hash": hex0x(transaction.hash)}
        | _place(header, index)
        | _parties(transaction)
        | {
            "type": "0x2",
            "nonce": quantity(transaction.nonce),
            "value": quantity(transaction.value),
            "gas": quantity(transaction.gas),
            "input": hex0x(transaction.data),
        }
        for index, transaction in enumerate(transactions)
    ]


def _place(header: Any, index: int) -> Document:
    return {
        "transactionIndex": quantity(index),
        "blockNumber": quantity(header.block_number),
        "blockHash": hex0x(header.hash),
    }


def _parties(transaction: Any) -> Document:
    return {"from": hex0x(transaction.sender), "to": hex0x(transaction.to) if transaction.to else None}


def _log(log: Any, number: int, where: Document) -> Document:
    return where | {
        "address": hex0x(log.address),
        "topics": [hex0x(topic.to_bytes(32, "big")) for topic in log.topics],
        "data": hex0x(log.data),
        "logIndex": quantity(number),
        "removed": False,
    }


def _gas_price(transaction: Any, header: Any) -> int:
    tip = min(transaction.max_priority_fee_per_gas, transaction.max_fee_per_gas - header.base_fee_per_gas)
    return int(header.base_fee_per_gas + tip)


def _created_address(transaction: Any) -> str:
    """keccak256(rlp([sender, nonce])), its last 20 bytes."""
    import rlp

    return hex0x(keccak256(rlp.encode([transaction.sender, transaction.nonce]))[12:])
