"""The chain client: the right chain, pages of logs, refusals in words."""

from typing import Any

import pytest

from protocol.canonical import hex0x
from protocol.chain.abi import ErrorTable
from protocol.chain.client import ChainClient
from protocol.errors import ChainError, NodeRefused, TransactionReverted, WrongChain
from tests.probe_contract import probe_abi

ADDRESS = "0x" + "ab" * 20


class FakeRpc:
    """Answers from a table; an exception in it is raised. Remembers the calls."""

    url = "http://node"

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def call_within(self, seconds: float, method: str, *params: Any) -> Any:
        return self.call(method, *params)

    def call(self, method: str, *params: Any) -> Any:
        self.calls.append((method, params))
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer(*params) if callable(answer) else answer


def client(**answers: Any) -> ChainClient:
    return ChainClient(FakeRpc(**answers), 31337, ErrorTable.of([probe_abi()]))  # type: ignore[arg-type]


def block(number: int) -> dict[str, str]:
    hash_of = {n: "0x" + f"{max(0, n):064x}" for n in (number, number - 1)}
    return {"number": hex(number), "hash": hash_of[number], "parentHash": hash_of[number - 1], "timestamp": "0x10"}


def refusal(data: Any, message: str = "execution reverted") -> NodeRefused:
    return NodeRefused("eth_call", 3, message, data)


def test_the_chain_id_must_be_the_expected_one() -> None:
    client(eth_chainId="0x7a69").check_chain()
    with pytest.raises(WrongChain, match="chain id 1 "):
        client(eth_chainId="0x1").check_chain()


def test_logs_are_asked_for_in_pages_that_meet() -> None:
    chain = client(eth_getLogs=[])
    assert list(chain.logs([ADDRESS], 5, 2504)) == []
    ranges = [(q["fromBlock"], q["toBlock"]) for _, (q,) in chain.rpc.calls]  # type: ignore[attr-defined]
    assert ranges == [(hex(5), hex(1004)), (hex(1005), hex(2004)), (hex(2005), hex(2504))]
    assert list(client().logs([ADDRESS], 7, 6)) == []


def test_a_confirmed_head_has_blocks_on_it() -> None:
    chain = client(eth_getBlockByNumber=lambda tag, _: block(20 if tag == "latest" else int(tag, 16)))
    assert chain.confirmed_head(1).number == 20
    assert chain.confirmed_head(12).number == 9
    assert chain.confirmed_head(50).number == 0


def test_a_block_beyond_the_head_is_none_but_the_head_must_be_there() -> None:
    chain = client(eth_getBlockByNumber=None)
    assert chain.block(9) is None
    with pytest.raises(ChainError, match="must have"):
        chain.head()


@pytest.mark.parametrize("block_seconds", [1, 12])
def test_a_time_is_found_among_blocks_of_any_pace(block_seconds: int) -> None:
    def answer(number: str, _full: bool) -> dict[str, str] | None:
        height = int(number, 16)
        return block(height) | {"timestamp": hex(1000 + block_seconds * height)} if height >= 7 else None

    chain = client(eth_getBlockByNumber=answer)
    assert chain.first_block_since(1000 + block_seconds * 90_000, 100_000) == 90_000
    assert chain.first_block_since(1000 + block_seconds * 90_000 + 1, 100_000) == 90_001
    assert chain.first_block_since(0, 100_000) == 7, "older ones are gone"
    assert chain.first_block_since(10**9, 100_000) == 100_001, "nothing is that new"
    assert len(methods(chain)) < 100


def code_since(made: int, oldest_state: int = 0) -> Any:
    """A node with a contract's code from block `made` on, and no state of blocks before `oldest_state`."""

    def answer(address: str, tag: str) -> str:
        if int(tag, 16) < oldest_state:
            raise NodeRefused("eth_getCode", -32000, "missing trie node")
        return "0x60" if int(tag, 16) >= made else "0x"

    return answer


@pytest.mark.parametrize("made", [0, 1, 77_777, 1_000_000])
def test_a_contracts_first_block_is_found_by_halving(made: int) -> None:
    chain = client(eth_getCode=code_since(made))
    assert chain.first_block_of_code(ADDRESS, 1_000_000) == made
    assert len(methods(chain)) <= 21


@pytest.mark.parametrize(
    ("oldest_state", "found"), [(70_000, 77_777), (77_776, 77_777), (77_777, None), (90_000, None)]
)
def test_a_contract_that_is_older_than_a_nodes_state_isnt_dated(oldest_state: int, found: int | None) -> None:
    chain = client(eth_getCode=code_since(77_777, oldest_state))
    assert chain.first_block_of_code(ADDRESS, 100_000) == found


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: {"data": data}])
def test_a_custom_error_is_decoded_wherever_the_node_puts_it(wrap: Any) -> None:
    data = probe_abi().errors["TooSmall"].selector + bytes(31) + b"\x03" + bytes(31) + b"\x0a" + bytes(32)
    with pytest.raises(TransactionReverted) as caught:
        client(eth_call=refusal(wrap(hex0x(data)))).call(ADDRESS, b"")
    assert (caught.value.name, caught.value.arguments[:2]) == ("TooSmall", (3, 10))
    assert "TooSmall" in caught.value.what


@pytest.mark.parametrize("data", [None, "0x", "0x12345678", "no hex", 7, {"data": None}])
def test_a_revert_without_known_data_is_still_a_revert(data: Any) -> None:
    with pytest.raises(TransactionReverted) as caught:
        client(eth_call=refusal(data)).call(ADDRESS, b"")
    assert caught.value.name == ""


def test_other_refusals_stay_what_they_are() -> None:
    with pytest.raises(NodeRefused, match="header not found"):
        client(eth_call=refusal(None, "header not found")).call(ADDRESS, b"")


@pytest.mark.parametrize("document", [{"number": "0x1"}, {"number": None}, {"timestamp": "now"}])
def test_a_malformed_block_is_a_chain_error(document: dict[str, Any]) -> None:
    with pytest.raises(ChainError):
        client(eth_getBlockByNumber=block(5) | {"timestamp": None} | document).head()


HASH, LOG_ADDRESS = "0x" + "5a" * 32, "0x" + "5a" * 20
LOG = {"address": LOG_ADDRESS, "topics": [HASH], "data": "0x", "blockNumber": "0x1", "blockHash": HASH}
LOG |= {"logIndex": "0x0", "transactionHash": HASH}


@pytest.mark.parametrize("answer", [None, 5, "5", "0x", "0xzz", "-0x1", [], {}, "0x" + "f" * 65])
def test_what_is_no_number_is_the_nodes_fault(answer: Any) -> None:
    asked = client(eth_chainId=answer, eth_getBalance=answer, eth_estimateGas=answer, eth_getTransactionCount=answer)
    for ask in (
        asked.check_chain,
        lambda: asked.balance_wei(LOG_ADDRESS),
        lambda: asked.transaction_count(LOG_ADDRESS),
        lambda: asked.estimate_gas(LOG_ADDRESS, None, b""),
    ):
        with pytest.raises(ChainError):
            ask()


@pytest.mark.parametrize("answer", [None, 5, "00", "0x0", "0x 00", "0xzz", ["0x"]])
def test_what_are_no_bytes_is_the_nodes_fault(answer: Any) -> None:
    asked = client(eth_call=answer, eth_getCode=answer)
    for ask in (lambda: asked.call(LOG_ADDRESS, b""), lambda: asked.code(LOG_ADDRESS)):
        with pytest.raises(ChainError):
            ask()


@pytest.mark.parametrize(
    "change", [{"topics": None}, {"topics": [5]}, {"data": "0x0"}, {"address": None}, {"blockHash": 1}]
)
def test_a_log_that_lacks_something_is_the_nodes_fault(change: dict[str, Any]) -> None:
    assert [log.topics for log in client(eth_getLogs=[LOG]).logs([LOG_ADDRESS], 0, 1)] == [(HASH,)]
    for answer in ([LOG | change], {"logs": []}, [7]):
        with pytest.raises(ChainError):
            list(client(eth_getLogs=answer).logs([LOG_ADDRESS], 0, 1))


@pytest.mark.parametrize("change", [{"logs": None}, {"logs": [5]}, {"status": None}, {"contractAddress": 5}])
def test_a_receipt_that_lacks_something_is_the_nodes_fault(change: dict[str, Any]) -> None:
    receipt = {"transactionHash": HASH, "blockNumber": "0x1", "blockHash": HASH, "status": "0x1", "gasUsed": "0x1"}
    receipt |= {"contractAddress": None, "logs": [LOG]}
    found = client(eth_getTransactionReceipt=receipt).receipt(HASH)
    assert found is not None and found.succeeded
    with pytest.raises(ChainError):
        client(eth_getTransactionReceipt=receipt | change).receipt(HASH)


def test_a_receipt_of_another_transaction_is_none_of_ours() -> None:
    receipt = {"transactionHash": HASH, "blockNumber": "0x1", "blockHash": HASH, "status": "0x1", "gasUsed": "0x1"}
    receipt |= {"contractAddress": None, "logs": []}
    assert client(eth_getTransactionReceipt=receipt).receipt(HASH) is not None
    with pytest.raises(ChainError, match="another receipt"):
        client(eth_getTransactionReceipt=receipt).receipt("0x" + "5b" * 32)


def test_a_block_is_the_one_that_was_asked_for() -> None:
    node = client(eth_getBlockByNumber=block(5))
    found = node.block(5)
    assert found is not None and found.number == 5
    with pytest.raises(ChainError, match="another block"):
        node.block(6)


@pytest.mark.parametrize("number", ["0x8000000000000000", "0x" + "f" * 64])
def test_no_block_time_log_or_nonce_is_past_what_sql_counts(number: str) -> None:
    last = "0x7fffffffffffffff"
    assert client(eth_getTransactionCount=last).transaction_count(ADDRESS) == 2**63 - 1
    assert client(eth_getBlockByNumber=block(5) | {"timestamp": last}).head().timestamp == 2**63 - 1
    for asked in (
        lambda: client(eth_getTransactionCount=number).transaction_count(ADDRESS),
        lambda: client(eth_getBlockByNumber=block(5) | {"timestamp": number}).head(),
        lambda: client(eth_getBlockByNumber=block(5) | {"number": number}).head(),
        lambda: list(client(eth_getLogs=[LOG | {"logIndex": number}]).logs([LOG_ADDRESS], 0, 1)),
    ):
        with pytest.raises(ChainError, match="too far"):
            asked()


def test_logs_come_once_in_order_and_from_the_range() -> None:
    second = LOG | {"logIndex": "0x1"}
    found = client(eth_getLogs=[second, LOG]).logs([LOG_ADDRESS], 0, 1)
    assert [log.log_index for log in found] == [0, 1]
    for answer, why in ([[LOG, second, LOG], "twice"], [[LOG, second | {"blockNumber": "0x2"}], "other blocks"]):
        with pytest.raises(ChainError, match=str(why)):
            list(client(eth_getLogs=answer).logs([LOG_ADDRESS], 0, 1))


SYNC, PLAIN = "eth_sendRawTransactionSync", "eth_sendRawTransaction"


def methods(chain: ChainClient) -> list[str]:
    return [method for method, _ in chain.rpc.calls]  # type: ignore[attr-defined]


def test_a_node_that_tells_when_it_is_mined_is_asked_to() -> None:
    chain = client(**{SYNC: {"status": "0x1"}})
    for _ in range(2):
        chain.send_raw_mined("0x02")
    assert methods(chain) == [SYNC, SYNC]


def test_a_node_that_doesnt_is_asked_once() -> None:
    chain = client(**{SYNC: NodeRefused(SYNC, -32601, "no such method"), PLAIN: HASH})
    for _ in range(2):
        chain.send_raw_mined("0x02")
    assert methods(chain) == [SYNC, PLAIN, PLAIN]


@pytest.mark.parametrize("answer", [TimeoutError("late"), NodeRefused(SYNC, 4, "not mined within 2 s")])
def test_what_isnt_mined_in_time_is_on_its_way_all_the_same(answer: Exception) -> None:
    chain = client(**{SYNC: answer})
    chain.send_raw_mined("0x02")
    assert methods(chain) == [SYNC]


def test_what_a_node_refuses_is_refused_either_way() -> None:
    for answers in (
        {SYNC: refusal(None, "nonce too low")},
        {SYNC: NodeRefused(SYNC, -32601, ""), PLAIN: refusal(None)},
    ):
        with pytest.raises(NodeRefused, match="refused"):
            client(**answers).send_raw_mined("0x02")
