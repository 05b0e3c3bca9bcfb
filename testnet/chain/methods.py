"""The JSON-RPC methods of the embedded chain, by name.

In: an `EmbeddedChain`, its `Producer` (who decides when blocks are made), a method and parameters as JSON.
Out: the result as JSON. Raises `Refused`. Methods and errors behave as anvil's do, as far as we use them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from protocol.canonical import from_hex0x, hex0x
from protocol.chain.rpc import quantity
from testnet.chain.coins import set_balance
from testnet.chain.evm import CallRequest, EmbeddedChain
from testnet.chain.genesis import GAS_LIMIT
from testnet.chain.mempool import Refused
from testnet.chain.producer import Producer

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
CLIENT_VERSION = "proofpool/embedded-py-evm"
TIP_WEI = 10**9


class Methods:
    """What the node answers.

    Example: `Methods(chain, producer).answer("eth_blockNumber", [])`.
    """

    def __init__(self, chain: EmbeddedChain, producer: Producer) -> None:
        self._chain = chain
        self._producer = producer
        self._table: dict[str, Callable[..., Any]] = {
            "web3_clientVersion": lambda: CLIENT_VERSION,
            "net_version": lambda: str(chain.chain_id),
            "eth_chainId": lambda: quantity(chain.chain_id),
            "eth_blockNumber": lambda: quantity(chain.number),
            "eth_getBlockByNumber": lambda tag, full=False: chain.block(self._number(tag)),
            "eth_getBlockByHash": lambda block_hash, full=False: chain.block_by_hash(block_hash.lower()),
            "eth_getTransactionByHash": lambda name: chain.transaction(name.lower()),
            "eth_getTransactionReceipt": lambda name: chain.receipt(name.lower()),
            "eth_getTransactionCount": self._transaction_count,
            "eth_getBalance": lambda a, tag="latest": quantity(chain.balance_wei(_address(a), self._mined(tag))),
            "eth_getCode": lambda a, tag="latest": hex0x(chain.code(_address(a), self._mined(tag))),
            "eth_getStorageAt": self._storage,
            "eth_call": lambda call, tag="latest": hex0x(chain.call(_request(call), self._mined(tag))),
            "eth_estimateGas": lambda call, tag="latest": quantity(
                chain.estimate_gas(_request(call), self._mined(tag))
            ),
            "eth_sendRawTransaction": lambda raw: self._producer.send(from_hex0x(raw)),
            "eth_getLogs": self._logs,
            "eth_gasPrice": lambda: quantity(self._base_fee(chain.number) + TIP_WEI),
            "eth_maxPriorityFeePerGas": lambda: quantity(TIP_WEI),
            "eth_feeHistory": self._fee_history,
            "evm_mine": lambda *_: self._producer.mine_now(),
            "evm_increaseTime": lambda seconds: quantity(self._producer.increase_time(_integer(seconds))),
            "evm_setNextBlockTimestamp": lambda timestamp: self._producer.set_next_timestamp(_integer(timestamp)),
            "evm_setAutomine": lambda is_on: self._producer.set_automine(bool(is_on)),
            "anvil_setBalance": lambda a, wei: set_balance(chain, producer, _address(a), _integer(wei)),
            "anvil_reorg": lambda depth, _: producer.reorg(_integer(depth)),
            "evm_snapshot": lambda: quantity(producer.snapshot()),
            "evm_revert": lambda snapshot: producer.revert(_integer(snapshot)),
        }

    def answer(self, method: str, params: list[Any]) -> Any:
        """Raises Refused."""
        function = self._table.get(method)
        if function is None:
            raise Refused(f"the method {method} does not exist", METHOD_NOT_FOUND)
        try:
            return function(*params)
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
            raise Refused(f"invalid parameters of {method}: {error}", INVALID_PARAMS) from error

    def _number(self, tag: Any) -> int:
        """A block's number, which may lie beyond the head."""
        if tag in ("latest", "pending", "safe", "finalized"):
            return self._chain.number
        number = 0 if tag == "earliest" else _integer(tag)
        if number < 0:
            raise ValueError(f"block {number}")
        return number

    def _mined(self, tag: Any) -> int:
        """The number of a block that has a state."""
        number = self._number(tag)
        if number > self._chain.number:
            raise Refused(f"block {number} isn't mined")
        return number

    def _transaction_count(self, address: str, tag: Any = "latest") -> str:
        return quantity(self._chain.nonce(_address(address), None if tag == "pending" else self._mined(tag)))

    def _storage(self, address: str, slot: Any, tag: Any = "latest") -> str:
        value = self._chain.storage(_address(address), _integer(slot), self._mined(tag))
        return hex0x(value.to_bytes(32, "big"))

    def _logs(self, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        first, last = self._span(query)
        addresses = query.get("address") or []
        wanted = {a.lower() for a in ([addresses] if isinstance(addresses, str) else addresses)}
        topics = query.get("topics") or []
        found = self._chain.logs(first, last)
        return [e for e in found if (not wanted or e["address"] in wanted) and _topics_match(e["topics"], topics)]

    def _span(self, query: Mapping[str, Any]) -> tuple[int, int]:
        """First and last block; a block by its hash is both."""
        if "blockHash" not in query:
            return self._number(query.get("fromBlock", "latest")), self._number(query.get("toBlock", "latest"))
        document = self._chain.block_by_hash(str(query["blockHash"]).lower())
        if document is None:
            raise Refused("unknown block", INVALID_PARAMS)
        return int(document["number"], 16), int(document["number"], 16)

    def _base_fee(self, number: int) -> int:
        document = self._chain.block(number)
        if document is None:
            raise Refused(f"block {number} isn't mined")
        return int(document["baseFeePerGas"], 16)

    def _fee_history(self, count: Any, newest: Any, percentiles: Any = ()) -> dict[str, Any]:
        last = self._mined(newest)
        first = max(0, last - _integer(count) + 1)
        documents = [document for n in range(first, last + 1) if (document := self._chain.block(n)) is not None]
        fees = [document["baseFeePerGas"] for document in documents]
        return {
            "oldestBlock": quantity(first),
            "baseFeePerGas": [*fees, fees[-1]],
            "gasUsedRatio": [int(document["gasUsed"], 16) / GAS_LIMIT for document in documents],
            "reward": [[quantity(TIP_WEI)] * len(percentiles) for _ in documents],
        }


def _request(call: Mapping[str, Any]) -> CallRequest:
    gas = call.get("gas")
    return CallRequest(
        sender=_address(call.get("from") or "0x" + "00" * 20),
        to=_address(call["to"]) if call.get("to") else b"",
        data=from_hex0x(call.get("data") or call.get("input") or ""),
        value_wei=_integer(call.get("value") or 0),
        gas=None if gas is None else _integer(gas),
    )


def _topics_match(topics: list[str], wanted: list[Any]) -> bool:
    """Each place names one topic, several to choose from, or none."""
    if len(wanted) > len(topics):
        return False
    choices = [[choice] if isinstance(choice, str) else choice for choice in wanted]
    return all(choice is None or topic in choice for topic, choice in zip(topics, choices, strict=False))


def _address(text: str) -> bytes:
    raw = from_hex0x(text)
    if len(raw) != 20:
        raise ValueError(f"an address has 20 bytes, not {len(raw)}")
    return raw


def _integer(value: Any) -> int:
    return int(value, 16) if isinstance(value, str) else int(value)
