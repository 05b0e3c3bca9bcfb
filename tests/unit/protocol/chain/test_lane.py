"""The lane: one nonce after the other, whatever the node does to a transaction."""

import threading
from collections.abc import Callable

import pytest
import rlp

from protocol.canonical import from_hex0x, hex0x, keccak256
from protocol.chain.block import Block, Receipt
from protocol.chain.lane import Lane, LanePolicy
from protocol.chain.transaction import SignedTransaction
from protocol.errors import ChainError, NodeRefused, TransactionReverted
from protocol.signing import Signer

TO = "0x" + "ab" * 20
NEVER = LanePolicy(stuck_seconds=10, deadline_seconds=60)


class LogicalClock:
    """Waiting is what makes time pass."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.time += seconds
        return stop.is_set()


class FakeChain:
    """Takes raw transactions; `mines` says of the i-th that it took whether it's mined."""

    chain_id = 31337

    def __init__(self, mines: Callable[[int], bool] = lambda _: True) -> None:
        self.mines = mines
        self.sent: list[str] = []
        self.refusals: list[Exception | None] = []
        self.count = 4
        self.succeeds = True
        self.estimate_error: Exception | None = None
        self.call_error: Exception | None = None

    def head(self) -> Block:
        return Block(7, "0x", "0x", 0, 10**9)

    def transaction_count(self, address: str, block: str) -> int:
        assert block == "pending"
        return self.count

    def estimate_gas(self, sender: str, to: str | None, data: bytes, value_wei: int) -> int:
        if self.estimate_error is not None:
            raise self.estimate_error
        return 100_000

    def send_raw(self, raw: str) -> str:
        refusal = self.refusals.pop(0) if self.refusals else None
        self.sent.append(raw)
        if refusal is not None:
            raise refusal
        return hash_of(raw)

    def receipt(self, transaction_hash: str) -> Receipt | None:
        hashes = [hash_of(raw) for raw in self.sent]
        if transaction_hash in hashes and self.mines(hashes.index(transaction_hash)):
            return Receipt(transaction_hash, 8, "0x", self.succeeds, 90_000, None, ())
        return None

    def call(self, to: str, data: bytes, *, sender: str, block: int) -> bytes:
        if self.call_error is not None:
            raise self.call_error
        return b""


def hash_of(raw: str) -> str:
    return hex0x(keccak256(from_hex0x(raw)))


def fields(raw: str) -> dict[str, int]:
    """Nonce and fees of a raw transaction."""
    values = rlp.decode(from_hex0x(raw)[1:])
    names = ("nonce", "tip", "fee", "gas")
    return {name: int.from_bytes(value, "big") for name, value in zip(names, values[1:5], strict=True)}


def make_lane(chain: FakeChain, policy: LanePolicy | None = None) -> Lane:
    return Lane(chain, Signer(b"\x07" * 32), LogicalClock(), policy)  # type: ignore[arg-type]


def refused(message: str) -> NodeRefused:
    return NodeRefused("eth_sendRawTransaction", -32000, message)


def test_nonces_follow_each_other_from_where_the_account_stands() -> None:
    chain = FakeChain()
    lane = make_lane(chain)
    receipts = [lane.send(TO, bytes([i])) for i in range(3)]
    assert [fields(raw)["nonce"] for raw in chain.sent] == [4, 5, 6]
    assert [receipt.transaction_hash for receipt in receipts] == [hash_of(raw) for raw in chain.sent]


def test_threads_never_share_a_nonce() -> None:
    chain = FakeChain()
    lane = make_lane(chain)
    threads = [threading.Thread(target=lane.send, args=(TO, bytes([i]))) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(fields(raw)["nonce"] for raw in chain.sent) == list(range(4, 20))


def test_a_call_that_would_fail_spends_no_nonce() -> None:
    chain = FakeChain()
    lane = make_lane(chain)
    chain.estimate_error = TransactionReverted("a contract refused: Late", "Late")
    with pytest.raises(TransactionReverted, match="Late"):
        lane.send(TO, b"")
    chain.estimate_error = None
    lane.send(TO, b"")
    assert [fields(raw)["nonce"] for raw in chain.sent] == [4]


def test_the_gas_limit_has_a_margin_unless_it_is_given() -> None:
    chain = FakeChain()
    lane = make_lane(chain)
    lane.send(TO, b"")
    lane.send(TO, b"", gas_limit=77_000)
    assert [fields(raw)["gas"] for raw in chain.sent] == [130_000, 77_000]


def test_a_used_nonce_is_read_anew() -> None:
    chain = FakeChain()
    lane = make_lane(chain)
    lane.send(TO, b"")
    chain.count, chain.refusals = 9, [refused("nonce too low: next nonce 9, tx nonce 5")]
    lane.send(TO, b"")
    lane.send(TO, b"")
    assert [fields(raw)["nonce"] for raw in chain.sent] == [4, 5, 9, 10]


def test_a_refused_transaction_leaves_no_gap() -> None:
    chain = FakeChain()
    lane = make_lane(chain)
    chain.refusals = [refused("insufficient funds for gas * price + value")]
    with pytest.raises(NodeRefused, match="refused"):
        lane.send(TO, b"")
    lane.send(TO, b"")
    assert [fields(raw)["nonce"] for raw in chain.sent] == [4, 4]


def test_what_the_node_knows_already_counts_as_sent() -> None:
    chain = FakeChain()
    chain.refusals = [refused("already known")]
    assert make_lane(chain).send(TO, b"").succeeded


def test_after_a_broken_connection_the_node_is_asked_for_the_nonce() -> None:
    chain = FakeChain()
    lane = make_lane(chain)
    lane.send(TO, b"")
    chain.refusals = [ChainError("the node can't be reached")]
    with pytest.raises(ChainError):
        lane.send(TO, b"")
    chain.count = 6  # the node did take it
    lane.send(TO, b"")
    assert [fields(raw)["nonce"] for raw in chain.sent] == [4, 5, 6]


def test_a_stuck_transaction_is_replaced_at_a_higher_fee() -> None:
    chain = FakeChain(mines=lambda index: index == 2)
    receipt = make_lane(chain, NEVER).send(TO, b"")
    sent = [fields(raw) for raw in chain.sent]
    assert [tx["nonce"] for tx in sent] == [4, 4, 4]
    assert all(new["fee"] * 100 >= old["fee"] * 112 for old, new in zip(sent, sent[1:], strict=False))
    assert all(new["tip"] * 100 >= old["tip"] * 112 for old, new in zip(sent, sent[1:], strict=False))
    assert receipt.transaction_hash == hash_of(chain.sent[2])


def test_the_first_one_may_still_be_the_one_that_is_mined() -> None:
    chain = FakeChain()
    chain.mines = lambda index: index == 0 and len(chain.sent) == 3
    assert make_lane(chain, NEVER).send(TO, b"").transaction_hash == hash_of(chain.sent[0])


def test_a_replacement_that_comes_too_late_is_no_error() -> None:
    chain = FakeChain()
    chain.refusals = [None, refused("nonce too low")]
    chain.mines = lambda index: index == 0 and len(chain.sent) == 2
    assert make_lane(chain, NEVER).send(TO, b"").transaction_hash == hash_of(chain.sent[0])


def test_fees_never_pass_the_limit() -> None:
    chain = FakeChain(mines=lambda _: False)
    policy = LanePolicy(stuck_seconds=1, deadline_seconds=60, max_fee_wei=4 * 10**9)
    with pytest.raises(ChainError, match="isn't mined in time"):
        make_lane(chain, policy).send(TO, b"")
    assert max(fields(raw)["fee"] for raw in chain.sent) <= 4 * 10**9
    assert len(chain.sent) > 10  # the last one is sent again: a node that was restarted may have lost it


def test_what_is_never_mined_is_an_error_and_the_nonce_is_read_anew() -> None:
    chain = FakeChain(mines=lambda index: index > 10)
    lane = make_lane(chain, NEVER)
    with pytest.raises(ChainError, match="isn't mined in time"):
        lane.send(TO, b"")
    chain.mines = lambda _: True
    lane.send(TO, b"")
    assert fields(chain.sent[-1])["nonce"] == 4


def test_stopping_ends_the_wait() -> None:
    lane = make_lane(FakeChain(mines=lambda _: False))
    lane.stop.set()
    with pytest.raises(ChainError):
        lane.send(TO, b"")


def test_a_failed_receipt_tells_the_contracts_reason() -> None:
    chain = FakeChain()
    chain.succeeds = False
    chain.call_error = TransactionReverted("a contract refused: TooSmall", "TooSmall", (1,))
    with pytest.raises(TransactionReverted, match="TooSmall"):
        make_lane(chain).send(TO, b"")


@pytest.mark.parametrize("call_error", [None, refused("missing trie node")])
def test_a_failed_receipt_without_a_reason_is_still_a_failure(call_error: Exception | None) -> None:
    chain = FakeChain()
    chain.succeeds, chain.call_error = False, call_error
    with pytest.raises(TransactionReverted, match="failed in block 8"):
        make_lane(chain).send(TO, b"")


def test_a_transaction_is_stored_before_it_is_sent_and_can_be_taken_up_again() -> None:
    chain = FakeChain()
    stored: list[SignedTransaction] = []

    def store(signed: SignedTransaction) -> None:
        assert signed.raw not in chain.sent
        stored.append(signed)
        raise KeyboardInterrupt  # killed between storing and sending

    with pytest.raises(KeyboardInterrupt):
        make_lane(chain).send(TO, b"", before_send=store)
    assert chain.sent == []
    first, second = (make_lane(chain).resend(stored[0]) for _ in range(2))
    assert first == second
    assert set(chain.sent) == {stored[0].raw}
