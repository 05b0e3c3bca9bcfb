"""The embedded node in this process: what it answers to strangers, and when it makes blocks."""

import json
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.canonical import from_hex0x
from protocol.chain.transaction import Transaction
from protocol.signing import Signer
from testnet.chain.embedded import NodeServer
from testnet.chain.evm import EmbeddedChain
from testnet.chain.genesis import dev_signers
from testnet.chain.mempool import Refused
from testnet.chain.methods import Methods
from testnet.chain.producer import Producer

TO = "0x" + "5e" * 20
RICH, POOR = dev_signers(2)
GWEI = 10**9


class LogicalClock:
    """Each wait lets its seconds pass, `num_waits` times."""

    def __init__(self, num_waits: int = 0) -> None:
        self.time, self.num_waits = 1_000_000.0, num_waits

    def now(self) -> float:
        return self.time

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.num_waits -= 1
        self.time += seconds
        return stop.is_set() or self.num_waits < 0


def make_chain() -> EmbeddedChain:
    return EmbeddedChain(31337, {from_hex0x(RICH.address): 10**21}, 1_000_000)


def make_methods(interval_seconds: float = 0, clock: LogicalClock | None = None) -> tuple[Methods, Producer]:
    chain = make_chain()
    producer = Producer(chain, clock or LogicalClock(), interval_seconds)
    return Methods(chain, producer), producer


def raw_transaction(nonce: int, signer: Signer = RICH, chain_id: int = 31337, **fields: Any) -> str:
    defaults = {"max_priority_fee_wei": GWEI, "max_fee_wei": 10 * GWEI, "gas_limit": 21_000, "to": TO}
    return Transaction(chain_id, nonce, **(defaults | fields)).sign(signer).raw


@pytest.fixture(scope="module")
def server() -> Any:
    methods, producer = make_methods()
    with NodeServer(0, methods, producer.lock) as node:
        yield node


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff", -32700),
        (b"7", -32600),
        (b'{"method": "eth_chainId", "params": 5}', -32600),
        (b'{"method": "eth_nothing"}', -32601),
        (b'{"method": null}', -32601),
        (b'{"method": "eth_call"}', -32602),
        (b'{"method": "eth_call", "params": [5]}', -32602),
        (b'{"method": "eth_getBalance", "params": ["0xzz"]}', -32602),
        (b'{"method": "eth_getBlockByNumber", "params": [{}]}', -32602),
        (b'{"method": "eth_getLogs", "params": [{"fromBlock": "x"}]}', -32602),
    ],
)
def test_hostile_requests_get_an_error_and_nothing_else(server: NodeServer, body: bytes, code: int) -> None:
    assert server.answer(body)["error"]["code"] == code


@given(st.recursive(st.none() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)))
@settings(max_examples=50)
def test_no_parameters_crash_a_method(server: NodeServer, params: Any) -> None:
    for method in ("eth_call", "eth_getLogs", "eth_getBalance", "eth_sendRawTransaction", "evm_increaseTime"):
        body = {"id": 1, "method": method, "params": params if isinstance(params, list) else [params]}
        answer = server.answer(json.dumps(body).encode())
        assert ("result" in answer) != ("error" in answer)


def test_a_batch_is_answered_in_order(server: NodeServer) -> None:
    calls = [{"id": i, "method": method} for i, method in enumerate(["eth_chainId", "eth_nothing", "net_version"])]
    answers = server.answer(json.dumps(calls).encode())
    assert [answer["id"] for answer in answers] == [0, 1, 2]
    assert ("result" in answers[0], "error" in answers[1], answers[2]["result"]) == (True, True, "31337")


def test_a_transaction_makes_a_block_at_once_without_an_interval() -> None:
    methods, _ = make_methods()
    transaction_hash = methods.answer("eth_sendRawTransaction", [raw_transaction(0, value_wei=5)])
    assert methods.answer("eth_getTransactionReceipt", [transaction_hash])["status"] == "0x1"
    assert methods.answer("eth_blockNumber", []) == "0x1"
    assert methods.answer("eth_getBalance", [TO]) == "0x5"


def test_blocks_come_by_the_clock_with_an_interval() -> None:
    clock = LogicalClock(num_waits=3)
    methods, producer = make_methods(2, clock)
    methods.answer("eth_sendRawTransaction", [raw_transaction(0)])
    assert methods.answer("eth_blockNumber", []) == "0x0"
    producer.run(threading.Event())
    assert methods.answer("eth_blockNumber", []) == "0x3"
    times = [int(methods.answer("eth_getBlockByNumber", [hex(n), False])["timestamp"], 16) for n in range(4)]
    assert times == [1_000_000, 1_000_002, 1_000_004, 1_000_006]
    assert len(methods.answer("eth_getBlockByNumber", ["0x1", False])["transactions"]) == 1


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (raw_transaction(0, POOR), "insufficient funds"),
        (raw_transaction(0, chain_id=1), "invalid chain id"),
        (raw_transaction(0, gas_limit=20_999), "intrinsic gas too low"),
        (raw_transaction(0, gas_limit=10**9, max_fee_wei=GWEI), "exceeds block gas limit"),
        ("0x02f8", "failed to decode"),
    ],
)
def test_what_can_never_run_is_refused(raw: str, message: str) -> None:
    methods, _ = make_methods()
    with pytest.raises(Refused, match=message):
        methods.answer("eth_sendRawTransaction", [raw])
    assert methods.answer("eth_blockNumber", []) == "0x0"


def test_a_gap_waits_for_the_missing_nonce() -> None:
    chain = make_chain()
    for nonce in (2, 1):
        chain.send(from_hex0x(raw_transaction(nonce)))
    assert chain.mine(0)["transactions"] == []
    chain.send(from_hex0x(raw_transaction(0)))
    assert len(chain.mine(0)["transactions"]) == 3
    assert chain.nonce(from_hex0x(RICH.address)) == 3


def test_too_cheap_a_transaction_waits_and_does_not_block_others() -> None:
    chain = make_chain()
    chain.send(from_hex0x(raw_transaction(0, max_fee_wei=GWEI // 2, max_priority_fee_wei=1)))
    assert chain.mine(0)["transactions"] == []
    assert chain.num_waiting == 1
    for _ in range(8):  # the base fee falls by an eighth a block
        chain.mine(0)
    assert chain.num_waiting == 0


def test_money_that_is_spent_twice_drops_the_second_transaction() -> None:
    chain = make_chain()
    for nonce in (0, 1):
        chain.send(from_hex0x(raw_transaction(nonce, value_wei=6 * 10**20)))
    assert len(chain.mine(0)["transactions"]) == 1
    assert chain.num_waiting == 0
    assert chain.balance_wei(from_hex0x(TO), chain.number) == 6 * 10**20


def test_old_states_stay_readable() -> None:
    chain = make_chain()
    for nonce in range(3):
        chain.send(from_hex0x(raw_transaction(nonce, value_wei=1)))
        chain.mine(0)
    assert [chain.balance_wei(from_hex0x(TO), number) for number in range(4)] == [0, 1, 2, 3]
