"""The chain as our processes see it: its id, blocks, logs, state, and refusals in words.

In: a `JsonRpc` and the custom errors that contracts may answer with. Out: typed values. A refused call raises
`TransactionReverted` with the decoded custom error; another chain than was expected raises `WrongChain`.
Sending is the lane's (`protocol/chain/lane.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from protocol.canonical import from_hex0x, hex0x, is_hash32, keccak256
from protocol.chain.abi import ErrorTable
from protocol.chain.block import Block, Log, Receipt, bytes_of, count_of, number_of
from protocol.chain.bloom import may_hold
from protocol.chain.ranges import BlockRanges
from protocol.chain.rpc import METHOD_NOT_FOUND, JsonRpc, block_tag, quantity
from protocol.errors import ChainError, NodeRefused, TransactionReverted, WrongChain

Topics = Sequence[Sequence[str] | None]
"""Which logs are wanted: at each place the topics that will do, or None for any (`eth_getLogs`)."""
LOG_PAGE_BLOCKS = 1000
HEADER_PAGE_BLOCKS = 200
LOOK_BACK_BLOCKS = 10_000
"""How far one look back into the logs goes."""
NO_SUCH_POOL = "NoSuchPool"
"""The error of every contract that is asked about a pool which was never made."""
SEND_MINED = "eth_sendRawTransactionSync"
MINED_SECONDS = 4.0
"""How long a node may take for that; whoever sends polls for the receipt afterwards."""
NOT_MINED_YET = 4
"""The JSON-RPC code of EIP-7966 for a node whose own deadline has passed: it has the transaction."""


class ChainClient:
    """A node of the chain with this id. `check_chain` asks it; commands do that before anything else.

    Example: `ChainClient(JsonRpc(url), 31337).head().number`.
    """

    def __init__(self, rpc: JsonRpc, chain_id: int, errors: ErrorTable | None = None) -> None:
        self.rpc = rpc
        self.chain_id = chain_id
        self._errors = errors or ErrorTable.of(())
        self._knows_mined = True
        self._log_ranges = BlockRanges("logs", LOG_PAGE_BLOCKS)
        self._header_ranges = BlockRanges("headers", HEADER_PAGE_BLOCKS)

    def check_chain(self) -> None:
        """Raises WrongChain unless the node serves this chain id."""
        found = number_of(self.rpc.call("eth_chainId"), "eth_chainId")
        if found != self.chain_id:
            raise WrongChain(
                "the node serves another chain",
                f"chain id {found} at {self.rpc.url}, expected {self.chain_id}",
                "set `chain_url` to a node of the right chain",
            )

    def head(self) -> Block:
        return self._block_at("latest")

    def block(self, number: int) -> Block | None:
        """None where the chain isn't that long."""
        document = self.rpc.call("eth_getBlockByNumber", quantity(number), False)
        return _numbered(document, number) if document is not None else None

    def confirmed_head(self, confirmations: int) -> Block:
        """The newest block that has `confirmations` blocks on it, itself counted (1 = the head)."""
        head = self.head()
        return head if confirmations <= 1 else self._block_at(max(0, head.number - confirmations + 1))

    def first_block_since(self, time: int, last_block: int) -> int:
        """The oldest block up to `last_block` that isn't before chain second `time`; the next one where all are.

        Asks for one block in each halving; one that the node doesn't have any more counts as older.
        """
        low, high = 0, last_block + 1
        while low < high:
            middle = (low + high) // 2
            block = self.block(middle)
            if block is None or block.timestamp < time:
                low = middle + 1
            else:
                high = middle
        return low

    def blocks(self, first_block: int, last_block: int) -> Iterator[Block]:
        """All blocks in [first_block, last_block], in order. Raises ChainError where the node lacks one."""

        def read(start: int, end: int) -> Iterator[Block]:
            numbers = range(start, end + 1)
            documents = self.rpc.batch([("eth_getBlockByNumber", (quantity(number), False)) for number in numbers])
            if None in documents:
                raise ChainError("the node lacks blocks below its head", f"{start} to {end}", "it is tried again")
            return map(_numbered, documents, numbers)

        return self._header_ranges.read(first_block, last_block, read)

    def logs(self, addresses: Sequence[str], first_block: int, last_block: int, topics: Topics = ()) -> Iterator[Log]:
        """All logs of these contracts in [first_block, last_block], in order, in ranges that the node answers for.

        With `topics`, those whose first topics are among the given ones, place by place (None: any).
        Raises ChainError where the node names one twice, or one of another block.
        """

        def read(start: int, end: int) -> list[Log]:
            query: dict[str, Any] = {"address": list(addresses), "fromBlock": quantity(start), "toBlock": quantity(end)}
            if topics:
                query["topics"] = [None if choice is None else list(choice) for choice in topics]
            found = self.rpc.call("eth_getLogs", query)
            if not isinstance(found, list):
                raise ChainError("the node's answer isn't a list of logs", f"{found!r:.100}")
            return _in_order(map(Log.of, found), start, end)

        return self._log_ranges.read(first_block, last_block, read)

    def left_out(self, addresses: Sequence[str], blocks: Sequence[Block], logs: Iterable[Log]) -> Block | None:
        """The first of these blocks that has logs of the contracts, though none of it is among `logs`; None is good.

        A node that is behind its fellows answers for a range with the logs that it has by then. Asked for a block by
        its hash it answers for that very block, or refuses; the header's bloom says which ones are worth asking for.
        """
        seen = {log.block_number for log in logs}
        silent = [b for b in blocks if b.number not in seen and any(may_hold(b.logs_bloom, a) for a in addresses)]
        size = self._header_ranges.num_blocks
        for page in (silent[start : start + size] for start in range(0, len(silent), size)):
            queries = [{"address": list(addresses), "blockHash": block.block_hash} for block in page]
            found = self.rpc.batch([("eth_getLogs", (query,)) for query in queries])
            if (block := next((block for block, logged in zip(page, found, strict=True) if logged), None)) is not None:
                return block
        return None

    def logs_back(self, address: str) -> Iterator[list[Log]]:
        """All logs of a contract, of the newest `LOOK_BACK_BLOCKS` blocks first; each list in the chain's order."""
        end = self.head().number
        while end >= 0:
            start = max(0, end - LOOK_BACK_BLOCKS + 1)
            yield list(self.logs([address], start, end))
            end = start - 1

    def code_hash(self, address: str) -> str:
        """keccak256 of the contract's code; of nothing where there is none."""
        return hex0x(keccak256(self.code(address)))

    def code(self, address: str, block: int | str = "latest") -> bytes:
        return bytes_of(self.rpc.call("eth_getCode", address, block_tag(block)), "eth_getCode")

    def first_block_of_code(self, address: str, last_block: int) -> int | None:
        """The block in which a contract was made that is there at `last_block`; one request in each halving.

        None where it is older than the oldest state that the node still has.
        """
        low, high, forgotten = 0, last_block, None
        while low < high:
            middle = (low + high) // 2
            try:
                is_there = bool(self.code(address, middle))
            except NodeRefused:  # most nodes drop the state of old blocks
                forgotten, is_there = middle, False
            if is_there:
                high = middle
            else:
                low = middle + 1
        return None if forgotten is not None and low == forgotten + 1 else low

    def balance_wei(self, address: str) -> int:
        """Native balance, which pays for gas."""
        return number_of(self.rpc.call("eth_getBalance", address, "latest"), "eth_getBalance")

    def transaction_count(self, address: str, block: str = "latest") -> int:
        return count_of(self.rpc.call("eth_getTransactionCount", address, block), "eth_getTransactionCount")

    def receipt(self, transaction_hash: str) -> Receipt | None:
        """None while it isn't mined. Raises ChainError for another transaction's."""
        document = self.rpc.call("eth_getTransactionReceipt", transaction_hash)
        if document is None:
            return None
        receipt = Receipt.of(document)
        if receipt.transaction_hash != transaction_hash:
            raise ChainError("the node gives another receipt than was asked for", receipt.transaction_hash)
        return receipt

    def is_mined(self, transaction_hash: str) -> bool:
        """Whether the node places it in a block; its receipt may come later than that."""
        document = self.rpc.call("eth_getTransactionByHash", transaction_hash)
        return isinstance(document, dict) and document.get("blockNumber") is not None

    def call(
        self, to: str, data: bytes, *, sender: str | None = None, value_wei: int = 0, block: int | str = "latest"
    ) -> bytes:
        """Run a function without a transaction. Raises TransactionReverted."""
        fields = _call_fields(sender, to, data) | ({"value": quantity(value_wei)} if value_wei else {})
        try:
            return bytes_of(self.rpc.call("eth_call", fields, block_tag(block)), "eth_call")
        except NodeRefused as error:
            raise self.explain(error) from error

    def estimate_gas(self, sender: str, to: str | None, data: bytes, value_wei: int = 0) -> int:
        """Gas that the call takes now. Raises TransactionReverted."""
        fields = _call_fields(sender, to, data) | {"value": quantity(value_wei)}
        try:
            return number_of(self.rpc.call("eth_estimateGas", fields), "eth_estimateGas")
        except NodeRefused as error:
            raise self.explain(error) from error

    def send_raw(self, raw: str) -> str:
        """Hand a signed transaction to the node; returns its hash. Raises NodeRefused."""
        transaction_hash = self.rpc.call("eth_sendRawTransaction", raw)
        if not isinstance(transaction_hash, str) or not is_hash32(transaction_hash.lower()):
            raise ChainError("the node's answer isn't a transaction hash", f"{transaction_hash!r:.100}")
        return transaction_hash.lower()

    def send_raw_mined(self, raw: str) -> None:
        """As `send_raw`, and return as soon as it's mined, or after `MINED_SECONDS` (EIP-7966).

        A node without the method is asked for it once; it then returns at once. Raises NodeRefused.
        """
        if not self._knows_mined:
            self.send_raw(raw)
            return
        try:
            self.rpc.call_within(MINED_SECONDS, SEND_MINED, raw)
        except TimeoutError:
            return
        except NodeRefused as error:
            if error.code == METHOD_NOT_FOUND:
                self._knows_mined = False
                self.send_raw(raw)
            elif error.code != NOT_MINED_YET:
                raise

    def explain(self, error: NodeRefused) -> ChainError:
        """A revert with its decoded custom error; any other refusal as it is."""
        data = _revert_data(error)
        if data is None and "revert" not in error.message.lower():
            return error
        found = self._errors.decode(data or b"")
        if found is None:
            return TransactionReverted(f"a contract refused: {error.message[:200]}")
        if found.name == NO_SUCH_POOL:
            todo = "`proofpool chain info` lists them; check the number, and which contracts are named"
            return TransactionReverted("there is no such pool on this chain", found.name, found.arguments, todo)
        return TransactionReverted(f"a contract refused: {found.name}", found.name, found.arguments)

    def _block_at(self, block: int | str) -> Block:
        document = self.rpc.call("eth_getBlockByNumber", block_tag(block), False)
        if document is None:
            raise ChainError("the node doesn't have a block that it must have", str(block))
        return _numbered(document, block) if isinstance(block, int) else Block.of(document)


def _numbered(document: Mapping[str, Any], number: int) -> Block:
    """The block, where it is the one that was asked for."""
    if (block := Block.of(document)).number != number:
        raise ChainError("the node gives another block than was asked for", f"{block.number}, not {number}")
    return block


def _in_order(logs: Iterable[Log], start: int, end: int) -> list[Log]:
    """The logs of [start, end], each of which is named once."""
    found = sorted(logs, key=lambda log: (log.block_number, log.log_index))
    for one, other in pairwise(found):
        if (one.block_number, one.log_index) == (other.block_number, other.log_index):
            raise ChainError("the node names a log twice", f"{one.log_index} in block {one.block_number}")
    if found and not (start <= found[0].block_number and found[-1].block_number <= end):
        raise ChainError("the node gives logs of other blocks than was asked for", f"{start} to {end}")
    return found


def _call_fields(sender: str | None, to: str | None, data: bytes) -> dict[str, str]:
    fields = {"from": sender, "to": to, "data": hex0x(data)}
    return {key: value for key, value in fields.items() if value is not None}


def _revert_data(error: NodeRefused) -> bytes | None:
    """Nodes put revert data at `data`, or one level deeper."""
    data = error.data.get("data") if isinstance(error.data, dict) else error.data
    if not isinstance(data, str) or not data.startswith("0x"):
        return None
    try:
        return from_hex0x(data)
    except ValueError:
        return None
