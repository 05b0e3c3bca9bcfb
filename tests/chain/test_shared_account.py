"""Several processes on one account by mistake: each is told, and what each of them sends happens once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from protocol.chain.client import ChainClient
from protocol.chain.lane import Lane
from protocol.chain.transaction import Transaction
from protocol.chain.watch import LanePolicy
from protocol.clock import SystemClock
from protocol.errors import AccountShared
from testnet.chain.genesis import CHAIN_ID, dev_signers
from testnet.chain.process import NodeProcess, python_environment

TO = "0x" + "5f" * 20
NUM_CALLS = 12
ACCOUNT = 7

SENDER = f"""
import sys
from protocol.chain.client import ChainClient
from protocol.chain.lane import Lane
from protocol.chain.rpc import JsonRpc
from protocol.clock import SystemClock
from protocol.errors import AccountShared
from testnet.chain.genesis import dev_signers

client = ChainClient(JsonRpc(sys.argv[1]), {CHAIN_ID})
lane = Lane(client, dev_signers({ACCOUNT + 1})[{ACCOUNT}], SystemClock())
for amount in range(int(sys.argv[2]), int(sys.argv[2]) + {NUM_CALLS}):
    while True:
        try:
            lane.send("{TO}", b"", value_wei=amount)
            break
        except AccountShared as error:
            print("told:", error.what, flush=True)
"""


def test_two_processes_on_one_account_send_everything_once(
    ticking_node: NodeProcess, make_client: Callable[[NodeProcess], ChainClient]
) -> None:
    client = make_client(ticking_node)
    signer = dev_signers(ACCOUNT + 1)[ACCOUNT]
    before, nonce = client.balance_wei(TO), client.transaction_count(signer.address)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SENDER, ticking_node.url, str(first)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=python_environment(),
        )
        for first in (1000, 5000)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    wanted = sum(range(1000, 1000 + NUM_CALLS)) + sum(range(5000, 5000 + NUM_CALLS))
    assert client.balance_wei(TO) - before == wanted
    assert client.transaction_count(signer.address) - nonce == 2 * NUM_CALLS


def test_a_lane_whose_nonce_was_taken_between_reading_and_sending_says_so_and_takes_the_next(
    node: NodeProcess,
    make_client: Callable[[NodeProcess], ChainClient],
    make_lane: Callable[..., Lane],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = make_client(node)
    lane = make_lane(client, ACCOUNT)
    before, read = client.balance_wei(TO), client.transaction_count
    taken: list[int] = []

    def taken_at_once(address: str, block: str = "latest") -> int:
        nonce = read(address, block)
        if not taken:
            taken.append(nonce)
            client.send_raw(_overbid(client, nonce))
        return nonce

    monkeypatch.setattr(client, "transaction_count", taken_at_once)
    with capture_logs() as logs:
        assert lane.send(TO, b"", value_wei=7).succeeded
    shared = [entry for entry in logs if entry["event"] == "account.shared"]
    assert len(shared) == 1 and f"nonce {taken[0]} of {lane.address}" in shared[0]["detail"]
    assert client.balance_wei(TO) == before + 1 + 7


def test_a_lane_whose_nonce_is_overbid_is_told_and_sends_nothing_twice(
    node: NodeProcess, make_client: Callable[[NodeProcess], ChainClient], make_lane: Callable[..., Lane]
) -> None:
    client = make_client(node)
    lane = make_lane(client, ACCOUNT)
    before = client.balance_wei(TO)
    client.rpc.call("evm_setAutomine", False)
    caught: list[AccountShared] = []

    def send() -> None:
        try:
            lane.send(TO, b"", value_wei=7)
        except AccountShared as error:
            caught.append(error)

    try:
        thread = threading.Thread(target=send)
        thread.start()
        nonce = client.transaction_count(lane.address)
        clock, never = SystemClock(), threading.Event()
        while client.transaction_count(lane.address, "pending") == nonce:
            clock.wait(never, 0.01)
        client.send_raw(_overbid(client, nonce))
        client.rpc.call("evm_mine")
        thread.join(60)
    finally:
        client.rpc.call("evm_setAutomine", True)
    assert f"nonce {nonce} of {lane.address}" in caught[0].why
    assert client.balance_wei(TO) == before + 1  # the other one's
    with capture_logs() as logs:
        assert lane.send(TO, b"", value_wei=7).succeeded
    assert logs == []
    assert client.balance_wei(TO) == before + 1 + 7


def _overbid(client: ChainClient, nonce: int) -> str:
    signer = dev_signers(ACCOUNT + 1)[ACCOUNT]
    fee = 400 * 10**9
    return Transaction(client.chain_id, nonce, fee, fee, 21_000, TO, 1).sign(signer).raw


@pytest.mark.parametrize("num_missing", [0, 1, 2])
def test_a_nonce_ahead_of_what_the_account_has_sent_is_reached_and_the_call_happens_once(
    ticking_node: NodeProcess,
    make_client: Callable[[NodeProcess], ChainClient],
    monkeypatch: pytest.MonkeyPatch,
    num_missing: int,
) -> None:
    """As after a reorg that dropped what came before, or where a node has counted too far once."""
    client, signer = make_client(ticking_node), dev_signers(ACCOUNT + 1)[ACCOUNT]
    count, asked = client.transaction_count, list[str]()

    def too_far_once(address: str, block: str = "latest") -> int:
        asked.append(block)
        return count(address, block) + (num_missing if asked.count("pending") == 1 and block == "pending" else 0)

    monkeypatch.setattr(client, "transaction_count", too_far_once)
    before, nonce = client.balance_wei(TO), count(signer.address)
    lane = Lane(client, signer, SystemClock(), LanePolicy(stuck_seconds=1.5, deadline_seconds=60))
    with capture_logs() as logs:
        assert lane.send(TO, b"", value_wei=77).succeeded
    filled = [entry["nonce"] for entry in logs if entry["event"] == "transaction.gap_filled"]
    assert filled == [nonce + i for i in range(num_missing)]
    assert client.balance_wei(TO) - before == 77
    assert count(signer.address) == nonce + num_missing + 1
    assert lane.resume() and lane.send(TO, b"", value_wei=1).succeeded
    assert client.balance_wei(TO) - before == 78 and count(signer.address) == nonce + num_missing + 2
