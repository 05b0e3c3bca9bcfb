"""The lane: one nonce after the other, whatever the node does to a transaction."""

import threading
from collections.abc import Callable

import pytest
import rlp
from structlog.testing import capture_logs

from protocol.canonical import from_hex0x, hex0x, keccak256
from protocol.chain.block import Block, Receipt
from protocol.chain.journal import Journal
from protocol.chain.lane import NUM_NONCE_ATTEMPTS, Lane
from protocol.chain.watch import NUM_LOOKS, LanePolicy
from protocol.errors import AccountShared, ChainError, NodeRefused, TransactionReverted
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
    """Takes raw transactions; `mines` says of the i-th that it took whether it's mined. `count` is the next nonce."""

    chain_id = 31337

    def __init__(self, mines: Callable[[int], bool] = lambda _: True) -> None:
        self.mines = mines
        self.sent: list[str] = []
        self.refusals: list[Exception | None] = []
        self.count = 4
        self.foreign = 0
        """How many nonces somebody else's transactions have taken."""
        self.succeeds = True
        self.estimate_error: Exception | None = None
        self.call_error: Exception | None = None
        self.trace: object = None
        self.outages = 0
        self.estimate = 100_000
        self.placed: set[str] = set()
        """Transactions that are in a block, though their receipts aren't there."""

    @property
    def rpc(self) -> "FakeChain":
        return self

    def head(self) -> Block:
        return Block(7, "0x", "0x", 0, 10**9, gas_limit=30_000_000)

    def transaction_count(self, address: str, block: str = "latest") -> int:
        """Mined ones; "pending" counts the others too. Raises while the node is away."""
        self.answer()
        nonces = {fields(raw)["nonce"] for i, raw in enumerate(self.sent) if block == "pending" or self.mines(i)}
        count = self.count + self.foreign
        while count in nonces:
            count += 1
        return count

    def estimate_gas(self, sender: str, to: str | None, data: bytes, value_wei: int) -> int:
        if self.estimate_error is not None:
            raise self.estimate_error
        return self.estimate

    def send_raw(self, raw: str) -> str:
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is None or not isinstance(refusal, NodeRefused):
            self.sent.append(raw)  # a broken connection may come after the node took it
        if refusal is not None:
            raise refusal
        return hash_of(raw)

    def send_raw_mined(self, raw: str) -> None:
        self.send_raw(raw)

    def receipt(self, transaction_hash: str) -> Receipt | None:
        self.answer()
        hashes = [hash_of(raw) for raw in self.sent]
        if transaction_hash in hashes and self.mines(hashes.index(transaction_hash)):
            return Receipt(transaction_hash, 8, "0x", self.succeeds, 90_000, None, ())
        return None

    def is_mined(self, transaction_hash: str) -> bool:
        return transaction_hash in self.placed

    def call(self, *request: object, **more: object) -> object:
        """Either a contract's function, or an RPC method: the trace is the only one that is asked for by name."""
        if request[0] == "debug_traceTransaction":
            if self.trace is None:
                raise refused("no such method")
            return self.trace
        if self.call_error is not None:
            raise self.call_error
        return b""

    def explain(self, error: NodeRefused) -> ChainError:
        return TransactionReverted("a contract refused: Traced", "Traced", (error.data,))

    def answer(self) -> None:
        if self.outages:
            self.outages -= 1
            raise ChainError("the node's answer can't be used", "500")


def hash_of(raw: str) -> str:
    return hex0x(keccak256(from_hex0x(raw)))


def fields(raw: str) -> dict[str, int]:
    """Nonce and fees of a raw transaction."""
    values = rlp.decode(from_hex0x(raw)[1:])
    names = ("nonce", "tip", "fee", "gas")
    return {name: int.from_bytes(value, "big") for name, value in zip(names, values[1:5], strict=True)}


def make_lane(chain: FakeChain, policy: LanePolicy | None = None, journal: Journal | None = None) -> Lane:
    return Lane(chain, Signer(b"\x07" * 32), LogicalClock(), policy, journal)  # type: ignore[arg-type]


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


def test_a_node_that_wants_more_gas_than_a_block_has_gets_nothing_signed() -> None:
    chain = FakeChain()
    lane = make_lane(chain)
    chain.estimate = 10**12
    with pytest.raises(ChainError, match="more gas than a block"):
        lane.send(TO, b"")
    assert not chain.sent
    chain.estimate = 23_000_000
    lane.send(TO, b"")
    assert [fields(raw)["nonce"] for raw in chain.sent] == [4], "and no nonce is lost"


def test_a_used_nonce_is_read_anew_and_said_to_be_somebody_elses() -> None:
    chain = FakeChain()
    lane = make_lane(chain)
    lane.send(TO, b"")
    chain.refusals = [refused("nonce too low: next nonce 9, tx nonce 5")]
    with capture_logs() as logs:
        assert lane.send(TO, b"").succeeded
    assert [fields(raw)["nonce"] for raw in chain.sent] == [4, 5]
    assert [entry["event"] for entry in logs] == ["account.shared"]
    assert "nonce 5 of 0x" in logs[0]["detail"]
    chain.refusals = [refused("replacement transaction underpriced")] * NUM_NONCE_ATTEMPTS
    with pytest.raises(AccountShared, match="another process sends with this account"):
        lane.send(TO, b"")
    assert len(chain.sent) == 2


def test_a_refused_transaction_leaves_no_gap() -> None:
    chain = FakeChain()
    lane = make_lane(chain)
    chain.refusals = [refused("insufficient funds for gas * price + value")]
    with pytest.raises(NodeRefused, match=f"insufficient funds.*send coins for gas to {lane.address}"):
        lane.send(TO, b"")
    chain.refusals = [refused("gas limit reached")]
    with pytest.raises(NodeRefused, match="gas limit") as other:
        lane.send(TO, b"")
    assert not other.value.todo
    lane.send(TO, b"")
    assert [fields(raw)["nonce"] for raw in chain.sent] == [4]


def test_what_the_node_knows_already_counts_as_sent() -> None:
    chain = FakeChain()
    chain.refusals = [refused("already known")]
    chain.sent = ["0x"]
    lane = make_lane(chain)
    chain.sent = []

    def remember(raw: str) -> str:
        chain.sent.append(raw)
        raise refused("already known")

    chain.send_raw = remember  # type: ignore[method-assign]
    assert lane.send(TO, b"").succeeded


def test_after_a_broken_connection_the_same_call_is_not_sent_under_another_nonce() -> None:
    chain = FakeChain()
    lane = make_lane(chain)
    lane.send(TO, b"")
    chain.refusals = [ChainError("the node can't be reached")]  # though it took the transaction
    with pytest.raises(ChainError):
        lane.send(TO, b"")
    lane.send(TO, b"")
    lane.send(TO, b"another")
    assert sorted({fields(raw)["nonce"] for raw in chain.sent}) == [4, 5, 6]
    assert len(set(chain.sent)) == 3


def test_what_a_node_refuses_for_reasons_of_its_own_may_have_been_taken() -> None:
    chain = FakeChain()
    lane = make_lane(chain)
    chain.refusals = [NodeRefused("eth_sendRawTransaction", -32603, "internal error")]
    with pytest.raises(NodeRefused):
        lane.send(TO, b"first")
    lane.send(TO, b"second")
    assert [fields(raw)["nonce"] for raw in chain.sent] == [4, 5]  # the first was handed over again
    assert lane.send(TO, b"first").transaction_hash == hash_of(chain.sent[0])
    assert len(set(chain.sent)) == 2


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
    chain.mines = lambda index: index == 0 and not chain.refusals
    assert make_lane(chain, NEVER).send(TO, b"").transaction_hash == hash_of(chain.sent[0])


def test_fees_never_pass_the_limit() -> None:
    chain = FakeChain(mines=lambda _: False)
    policy = LanePolicy(stuck_seconds=1, deadline_seconds=60, max_fee_wei=4 * 10**9)
    with pytest.raises(ChainError, match="isn't mined in time"):
        make_lane(chain, policy).send(TO, b"")
    assert max(fields(raw)["fee"] for raw in chain.sent) <= 4 * 10**9
    assert len(chain.sent) > 10  # the last one is sent again: a node that was restarted may have lost it


def test_what_is_never_mined_is_an_error_and_the_same_call_goes_on_waiting_for_it() -> None:
    chain = FakeChain(mines=lambda _: False)
    lane = make_lane(chain, NEVER)
    with pytest.raises(ChainError, match="isn't mined in time"):
        lane.send(TO, b"")
    last = chain.sent[-1]
    chain.mines = lambda index: chain.sent[index] == last
    assert lane.send(TO, b"").transaction_hash == hash_of(last)
    assert {fields(raw)["nonce"] for raw in chain.sent} == {4}


def test_a_node_that_answers_with_errors_for_a_while_is_waited_for_and_said_to_be() -> None:
    chain = FakeChain()
    lane = make_lane(chain)
    send_raw = chain.send_raw

    def go_away(raw: str) -> str:
        chain.outages = 140  # a minute and more, at the longest pause
        return send_raw(raw)

    chain.send_raw = go_away  # type: ignore[method-assign]
    with capture_logs() as logs:
        assert lane.send(TO, b"").succeeded
    waits = [entry for entry in logs if entry["event"] == "waiting"]
    assert len(waits) == 3
    assert waits[-1]["awaited"] == f"transaction {hash_of(chain.sent[0])}"
    assert "500" in waits[-1]["why"]
    assert 60 < waits[-1]["since_seconds"] < 90
    assert len(set(chain.sent)) == 1


def test_a_nonce_that_somebody_elses_transaction_took_is_told() -> None:
    chain = FakeChain(mines=lambda _: False)
    lane = make_lane(chain)
    send_raw = chain.send_raw

    def lose(raw: str) -> str:
        chain.foreign = 1
        return send_raw(raw)

    chain.send_raw = lose  # type: ignore[method-assign]
    with pytest.raises(AccountShared) as caught:
        lane.send(TO, b"")
    assert "nonce 4 of" in caught.value.why
    assert "a key of its own" in caught.value.todo
    chain.mines, chain.send_raw = lambda index: index > 0, send_raw  # type: ignore[method-assign]
    assert lane.send(TO, b"").succeeded
    assert [fields(raw)["nonce"] for raw in chain.sent] == [4, 5]


def test_a_slow_receipt_is_not_taken_for_somebody_elses_transaction() -> None:
    chain = FakeChain()
    receipt, asked = chain.receipt, []

    def late(transaction_hash: str) -> Receipt | None:
        asked.append(transaction_hash)
        return receipt(transaction_hash) if len(asked) > 5 + NUM_LOOKS - 1 else None

    chain.receipt = late  # type: ignore[method-assign]
    assert make_lane(chain).send(TO, b"").succeeded


def test_a_receipt_that_comes_much_later_than_its_block_is_waited_for() -> None:
    """Said to be somebody else's the call would be sent again, and happen twice."""
    chain = FakeChain()
    receipt, asked, send_raw = chain.receipt, [], chain.send_raw

    def late(transaction_hash: str) -> Receipt | None:
        asked.append(transaction_hash)
        return receipt(transaction_hash) if len(asked) > 20 + NUM_LOOKS else None

    def place(raw: str) -> str:
        chain.placed.add(hash_of(raw))
        return send_raw(raw)

    chain.receipt, chain.send_raw = late, place  # type: ignore[method-assign]
    assert make_lane(chain).send(TO, b"").succeeded
    assert len(chain.sent) == 1


def test_stopping_ends_the_wait() -> None:
    lane = make_lane(FakeChain(mines=lambda _: False))
    lane.stop.set()
    with pytest.raises(ChainError):
        lane.send(TO, b"")


def test_a_failed_receipt_tells_the_contracts_reason() -> None:
    chain = FakeChain()
    chain.succeeds = False
    chain.call_error = TransactionReverted("a contract refused: TooSmall", "TooSmall", (1,))
    with pytest.raises(TransactionReverted, match="failed in block 8: TooSmall") as caught:
        make_lane(chain).send(TO, b"")
    assert caught.value.arguments == (1,)


def test_the_trace_of_what_failed_is_the_better_source() -> None:
    chain = FakeChain()
    chain.succeeds = False
    chain.call_error = TransactionReverted("a contract refused: TooSmall", "TooSmall", (1,))
    chain.trace = {"error": "execution reverted", "output": "0x1234"}
    with pytest.raises(TransactionReverted, match="Traced") as caught:
        make_lane(chain).send(TO, b"")
    assert caught.value.arguments == ("0x1234",)


def test_a_transaction_without_enough_gas_says_so() -> None:
    chain = FakeChain()
    chain.succeeds = False
    with pytest.raises(TransactionReverted, match="out of gas"):
        make_lane(chain).send(TO, b"", gas_limit=90_000)


@pytest.mark.parametrize("call_error", [None, refused("missing trie node")])
def test_a_failed_receipt_without_a_reason_is_still_a_failure(call_error: Exception | None) -> None:
    chain = FakeChain()
    chain.succeeds, chain.call_error = False, call_error
    with pytest.raises(TransactionReverted, match="failed in block 8"):
        make_lane(chain).send(TO, b"")


def test_what_an_earlier_process_left_is_seen_through_before_anything_else_is_sent() -> None:
    chain, journal = FakeChain(mines=lambda _: False), Journal()
    with pytest.raises(ChainError, match="isn't mined in time"):
        make_lane(chain, NEVER, journal).send(TO, b"left")
    chain.mines = lambda number: number == len(chain.sent) - 1
    left = fields(chain.sent[-1])
    (finished,) = make_lane(chain, NEVER, journal).finish()
    assert (finished.call.data, finished.receipt is not None) == (b"left", True)
    assert fields(chain.sent[-1])["nonce"] == left["nonce"] and fields(chain.sent[-1])["fee"] >= left["fee"]
    assert make_lane(chain, NEVER, journal).finish() == []


def test_what_had_no_effect_or_lost_its_nonce_is_told_from_what_was_done() -> None:
    for spoil in ("reverts", "taken"):
        chain, journal = FakeChain(mines=lambda _: False), Journal()
        with pytest.raises(ChainError, match="isn't mined in time"):
            make_lane(chain, NEVER, journal).send(TO, b"left")
        if spoil == "taken":
            chain.foreign = 1
        else:
            chain.mines, chain.succeeds = (lambda _: True), False
        (finished,) = make_lane(chain, NEVER, journal).finish()
        assert (finished.call.data, finished.receipt) == (b"left", None)
        assert make_lane(chain, NEVER, journal).finish() == []
