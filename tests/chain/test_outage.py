"""A node that answers with errors, or not at all, for a while: who sends waits, says so, and doubles nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from structlog.testing import capture_logs

from protocol.chain.abi import ErrorTable
from protocol.chain.client import ChainClient
from protocol.chain.lane import Lane
from protocol.chain.rpc import JsonRpc
from protocol.chain.watch import LanePolicy
from protocol.clock import SystemClock
from protocol.errors import ChainError, Unreachable, WrongChain
from protocol.waiting import Waiting
from testnet.chain.genesis import CHAIN_ID, dev_signers
from testnet.chain.process import NodeProcess
from tests.flaky_node import FlakyNode
from tests.probe_contract import probe_abi

OUTAGE = LanePolicy(deadline_seconds=600)


class HurriedClock(SystemClock):
    """Time passes where somebody waits, and nobody has to."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def now(self) -> float:
        return super().now() + self.skipped

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.skipped += seconds
        return stop.is_set()


@pytest.fixture
def flaky(node: NodeProcess) -> Iterator[FlakyNode]:
    with FlakyNode(node.url) as proxy:
        yield proxy


@pytest.fixture
def flaky_client(flaky: FlakyNode) -> Iterator[ChainClient]:
    rpc = JsonRpc(flaky.url, timeout_seconds=0.3, clock=HurriedClock())
    yield ChainClient(rpc, CHAIN_ID, ErrorTable.of([probe_abi()]))
    rpc.close()


@pytest.mark.parametrize(("how", "num_requests"), [("http", 130), ("rpc", 130), ("silent", 4)])
def test_a_transaction_is_waited_for_through_an_outage(
    client: ChainClient, flaky: FlakyNode, flaky_client: ChainClient, probe: str, how: str, num_requests: int
) -> None:
    clock, signer = HurriedClock(), dev_signers(5)[4]
    before = client.transaction_count(signer.address)
    lane = Lane(flaky_client, signer, clock, OUTAGE)
    send_raw = flaky_client.send_raw

    def send_and_lose_the_node(raw: str) -> None:
        send_raw(raw)
        flaky.fail(how, num_requests)

    flaky_client.send_raw_mined = send_and_lose_the_node  # type: ignore[method-assign]
    with capture_logs() as logs:
        receipt = lane.send(probe, probe_abi().encode_call("store", 1, 4242, ""), gas_limit=100_000)
    assert receipt.succeeded
    assert flaky.num_failed == num_requests
    assert client.transaction_count(signer.address) == before + 1
    waits = [entry for entry in logs if entry["event"] == "waiting"]
    assert waits and waits[0]["awaited"] == f"transaction {receipt.transaction_hash}"
    assert len(waits) == (3 if num_requests > 4 else 1)


def test_a_node_that_is_away_when_a_call_is_sent_gets_it_once(
    client: ChainClient, flaky: FlakyNode, flaky_client: ChainClient, probe: str
) -> None:
    signer = dev_signers(6)[5]
    before = client.transaction_count(signer.address)
    lane = Lane(flaky_client, signer, HurriedClock(), OUTAGE)
    call = probe_abi().encode_call("store", 1, 77, "")
    for how in ("http", "rpc", "silent"):
        flaky.fail(how, 1)
        with pytest.raises(ChainError):
            lane.send(probe, call, gas_limit=100_000)
    assert lane.send(probe, call, gas_limit=100_000).succeeded
    assert client.transaction_count(signer.address) == before + 1


def test_a_role_that_starts_waits_for_the_node_and_says_so(flaky: FlakyNode, flaky_client: ChainClient) -> None:
    waiting = Waiting(HurriedClock(), threading.Event(), 0.5)
    flaky.fail("http", 130)
    with capture_logs() as logs:
        head = waiting.until("the chain's node", flaky_client.head)
    assert head is not None
    waits = [entry for entry in logs if entry["event"] == "waiting"]
    assert [entry["awaited"] for entry in waits] == ["the chain's node"] * 3
    assert "500" in waits[0]["why"]


def test_a_role_doesnt_wait_for_a_node_of_another_chain(
    node: NodeProcess, make_client: Callable[..., ChainClient]
) -> None:
    other = ChainClient(make_client(node).rpc, CHAIN_ID + 1)
    waiting = Waiting(HurriedClock(), threading.Event(), 0.5)
    with pytest.raises(WrongChain) as caught:
        waiting.until("the chain's node", other.check_chain)
    assert isinstance(caught.value, Unreachable)
    assert "chain id 31337" in caught.value.why
    assert "expected 31338" in caught.value.why
