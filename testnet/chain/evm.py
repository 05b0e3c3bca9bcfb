"""The embedded chain itself: blocks, state and waiting transactions on py-evm, without network or clock.

In: signed transactions (`send`), the time of the next block (`mine`). Out: JSON-RPC documents and call results.
Calls and gas estimates run on the state and in the time of a mined block, as anvil's do. Everything is kept in
memory for as long as the process lives. One thread at a time: the server (`embedded.py`) holds the lock.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eth.abc import ComputationAPI
from eth.chains.base import Chain
from eth.db.atomic import AtomicDB
from eth.exceptions import Revert
from eth.vm.forks.cancun import CancunVM
from eth.vm.spoof import SpoofTransaction
from eth_utils.exceptions import ValidationError

from protocol.canonical import hex0x, sha256
from testnet.chain.documents import Document, block_document, receipt_documents, transaction_documents
from testnet.chain.genesis import GAS_LIMIT
from testnet.chain.mempool import Mempool, Refused

FIRST_BASE_FEE_WEI = 10**9
REVERTED = 3
"""The JSON-RPC code of a call that the contract refused."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _MinedBlock:
    header: Any
    document: Document
    receipts: list[Document] = field(default_factory=list)


@dataclass(frozen=True)
class CallRequest:
    """The fields of eth_call and eth_estimateGas."""

    sender: bytes = bytes(20)
    to: bytes = b""
    data: bytes = b""
    value_wei: int = 0
    gas: int | None = None


class EmbeddedChain:
    """A chain with one block producer.

    Example: `chain.send(raw); chain.mine(timestamp); chain.receipt(transaction_hash)`.
    """

    def __init__(self, chain_id: int, balances_wei: Mapping[bytes, int], timestamp: int) -> None:
        self.chain_id = chain_id
        chain_class: Any = type(
            "_EmbeddedChain", (Chain,), {"chain_id": chain_id, "vm_configuration": ((0, CancunVM),)}
        )
        state = {a: {"balance": b, "nonce": 0, "code": b"", "storage": {}} for a, b in balances_wei.items()}
        self._chain = chain_class.from_genesis(AtomicDB(), _genesis(timestamp), state)
        first = self._chain.get_canonical_head()
        self._blocks = [_MinedBlock(first, block_document(first, []))]
        self._mempool = Mempool()
        self._receipts: dict[str, Document] = {}
        self._transactions: dict[str, Document] = {}
        self._snapshots: list[int] = []
        self._branch = 0

    @property
    def number(self) -> int:
        """The head's."""
        return len(self._blocks) - 1

    @property
    def timestamp(self) -> int:
        """The head's."""
        return int(self._blocks[-1].header.timestamp)

    @property
    def num_waiting(self) -> int:
        return len(self._mempool)

    def send(self, raw: bytes) -> str:
        """Take a signed transaction; it's mined later. Raises Refused."""
        try:
            transaction = self._vm(self.number).get_transaction_builder().decode(raw)
            transaction.validate()
            transaction.check_signature_validity()
        except Exception as error:  # the decoder raises whatever the bytes make it raise
            raise Refused(f"failed to decode signed transaction: {error}", -32602) from error
        if transaction.chain_id != self.chain_id:
            raise Refused("invalid chain id for signer")
        state = self._vm(self.number).state
        if state.get_balance(transaction.sender) < transaction.gas * transaction.max_fee_per_gas + transaction.value:
            raise Refused("insufficient funds for gas * price + value")
        if not transaction.intrinsic_gas <= transaction.gas <= GAS_LIMIT:
            raise Refused("intrinsic gas too low" if transaction.gas < GAS_LIMIT else "exceeds block gas limit")
        if hex0x(transaction.hash) in self._receipts:
            raise Refused("already known")
        self._mempool.add(transaction, state.get_nonce(transaction.sender))
        return hex0x(transaction.hash)

    def mine(self, timestamp: int) -> Document:
        """Make a block of what waits, at this time or a second after the last block's, whichever is later."""
        parent = self._blocks[-1].header
        header = CancunVM.create_header_from_parent(
            parent,
            timestamp=max(timestamp, parent.timestamp + 1),
            gas_limit=parent.gas_limit,
            mix_hash=sha256(parent.hash + self._branch.to_bytes(8, "big")),
        )
        vm = self._chain.get_vm(header)
        header, transactions, receipts = self._apply_waiting(vm, header)
        block = vm.set_block_transactions_and_withdrawals(vm.get_block(), header, transactions, receipts)
        block = vm.mine_block(block).block
        self._chain.chaindb.persist_block(block)
        documents = receipt_documents(block.header, transactions, receipts)
        hashes = [document["transactionHash"] for document in documents]
        self._blocks.append(_MinedBlock(block.header, block_document(block.header, hashes), documents))
        self._receipts |= zip(hashes, documents, strict=True)
        self._transactions |= zip(hashes, transaction_documents(block.header, transactions), strict=True)
        return self._blocks[-1].document

    def block(self, number: int) -> Document | None:
        return self._blocks[number].document if 0 <= number <= self.number else None

    def block_by_hash(self, block_hash: str) -> Document | None:
        return next((b.document for b in reversed(self._blocks) if b.document["hash"] == block_hash), None)

    def receipt(self, transaction_hash: str) -> Document | None:
        return self._receipts.get(transaction_hash)

    def transaction(self, transaction_hash: str) -> Document | None:
        """A mined one; what waits isn't found."""
        return self._transactions.get(transaction_hash)

    def logs(self, first: int, last: int) -> list[Document]:
        """All logs of the blocks in [first, last]."""
        blocks = self._blocks[max(first, 0) : last + 1]
        return [entry for block in blocks for receipt in block.receipts for entry in receipt["logs"]]

    def nonce(self, address: bytes, number: int | None = None) -> int:
        """Mined transactions up to a block; None counts what waits as well."""
        mined = self._vm(self.number if number is None else number).state.get_nonce(address)
        return self._mempool.next_nonce(address, mined) if number is None else int(mined)

    def balance_wei(self, address: bytes, number: int) -> int:
        return int(self._vm(number).state.get_balance(address))

    def code(self, address: bytes, number: int) -> bytes:
        return bytes(self._vm(number).state.get_code(address))

    def storage(self, address: bytes, slot: int, number: int) -> int:
        return int(self._vm(number).state.get_storage(address, slot))

    def call(self, request: CallRequest, number: int) -> bytes:
        """What a call returns. Raises Refused with the revert data."""
        computation = self._run(request, request.gas or GAS_LIMIT, number)
        _check_computation(computation)
        return bytes(computation.output)

    def estimate_gas(self, request: CallRequest, number: int) -> int:
        """A gas limit that suffices, seldom more than a few thousand above the least one. Raises Refused."""
        limit = request.gas or GAS_LIMIT
        computation = self._run(request, limit, number)
        _check_computation(computation)
        used = limit - computation.get_gas_remaining()
        # A call passes on 63/64 of what is left, so the limit must be above what is used; refunds come at the end.
        candidate = used + used // 63 + 5_000
        while candidate < limit and self._run(request, candidate, number).is_error:
            candidate *= 2
        return int(min(candidate, limit))

    def snapshot(self) -> int:
        self._snapshots.append(self.number)
        return len(self._snapshots)

    def revert(self, snapshot: int) -> bool:
        """Go back to a snapshot, which is used up with all later ones; False where there is no such."""
        if not 1 <= snapshot <= len(self._snapshots):
            return False
        number = self._snapshots[snapshot - 1]
        del self._snapshots[snapshot - 1 :]
        self._forget_past(number)
        return True

    def drop(self, num_blocks: int) -> list[int]:
        """Forget the newest blocks, their transactions and what waits; their times, for the blocks that come instead.

        Blocks after it have other hashes than the dropped ones. Raises Refused where there are no so many.
        """
        if not 0 < num_blocks <= self.number:
            raise Refused(f"the chain has {self.number} blocks to drop, not {num_blocks}")
        self._branch += 1
        times = [block.header.timestamp for block in self._blocks[-num_blocks:]]
        self._forget_past(self.number - num_blocks)
        return times

    def _forget_past(self, number: int) -> None:
        for block in self._blocks[number + 1 :]:
            for receipt in block.receipts:
                del self._receipts[receipt["transactionHash"]], self._transactions[receipt["transactionHash"]]
        del self._blocks[number + 1 :]
        self._mempool.clear()

    def _apply_waiting(self, vm: Any, header: Any) -> tuple[Any, list[Any], list[Any]]:
        """Run what waits and fits; what can't ever run is dropped, what is too cheap or too large waits on."""
        transactions: list[Any] = []
        receipts: list[Any] = []
        for transaction in self._mempool.ready(vm.state.get_nonce):
            if transaction.max_fee_per_gas < header.base_fee_per_gas:
                continue
            if transaction.gas > header.gas_limit - header.gas_used:
                continue
            self._mempool.remove(transaction)
            try:
                receipt, _ = vm.apply_transaction(header, transaction)
            except ValidationError as error:
                log.warning("dropped transaction %s: %s", hex0x(transaction.hash), error)
                continue
            header = vm.add_receipt_to_header(header, receipt)
            transactions.append(transaction)
            receipts.append(receipt)
        return header, transactions, receipts

    def _run(self, request: CallRequest, gas: int, number: int) -> ComputationAPI:
        vm = self._vm(number, is_free=True)
        transaction = vm.get_transaction_builder().new_unsigned_dynamic_fee_transaction(
            chain_id=self.chain_id,
            nonce=vm.state.get_nonce(request.sender),
            max_priority_fee_per_gas=0,
            max_fee_per_gas=0,
            gas=gas,
            to=request.to,
            value=request.value_wei,
            data=request.data,
            access_list=(),
        )
        try:
            computation: ComputationAPI = vm.state.apply_transaction(
                SpoofTransaction(transaction, from_=request.sender)
            )
        except ValidationError as error:
            raise Refused(str(error)) from error
        return computation

    def _vm(self, number: int, *, is_free: bool = False) -> Any:
        """The machine with the state and time of a mined block; free ones ask no gas price of callers."""
        header = self._blocks[number].header
        return self._chain.get_vm(header.copy(base_fee_per_gas=0) if is_free else header)


def _genesis(timestamp: int) -> dict[str, Any]:
    return {
        "coinbase": bytes(20),
        "difficulty": 0,
        "extra_data": b"",
        "gas_limit": GAS_LIMIT,
        "mix_hash": bytes(32),
        "nonce": bytes(8),
        "timestamp": timestamp,
        "base_fee_per_gas": FIRST_BASE_FEE_WEI,
    }


def _check_computation(computation: ComputationAPI) -> None:
    if not computation.is_error:
        return
    if isinstance(computation.error, Revert):
        raise Refused("execution reverted", REVERTED, hex0x(computation.output))
    raise Refused(f"EVM error: {type(computation.error).__name__}: {computation.error}")
