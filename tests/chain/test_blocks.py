"""Nodes that make a block a second: order, waiting, replacing, ending."""

import threading
from collections.abc import Callable

import pytest

from protocol.chain.client import ChainClient
from protocol.chain.lane import Lane, LanePolicy
from protocol.chain.transaction import Transaction
from protocol.clock import SystemClock
from protocol.errors import NodeRefused
from testnet.chain.genesis import dev_signers
from testnet.chain.node import start_node
from testnet.chain.process import NodeProcess

TO = "0x" + "5e" * 20

MakeClient = Callable[[NodeProcess], ChainClient]


def test_threads_share_a_lane(
    ticking_node: NodeProcess, make_client: MakeClient, make_lane: Callable[..., Lane]
) -> None:
    client = make_client(ticking_node)
    lane = make_lane(client, 1)
    receipts = []

    def send(amount: int) -> None:
        receipts.append(lane.send(TO, b"", value_wei=amount))

    threads = [threading.Thread(target=send, args=(amount,)) for amount in range(1, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({receipt.transaction_hash for receipt in receipts}) == 12
    assert client.transaction_count(lane.address) == 12
    assert client.balance_wei(TO) == sum(range(1, 13))


def test_blocks_come_without_transactions(ticking_node: NodeProcess, make_client: MakeClient) -> None:
    client = make_client(ticking_node)
    first = client.head()
    clock, never = SystemClock(), threading.Event()
    deadline = clock.now() + 30
    while client.head().number < first.number + 2:
        assert clock.now() < deadline
        clock.wait(never, 0.1)
    later = client.head()
    assert later.timestamp > first.timestamp


def test_what_waits_counts_for_the_next_nonce_and_can_be_replaced(
    ticking_node: NodeProcess, make_client: MakeClient
) -> None:
    client, signer = make_client(ticking_node), dev_signers(3)[2]

    def transaction(nonce: int, fee_gwei: int) -> str:
        fee = fee_gwei * 10**9
        return Transaction(31337, nonce, fee, fee, 21_000, TO).sign(signer).raw

    first = client.send_raw(transaction(1, 10))  # waits for nonce 0
    assert client.transaction_count(signer.address, "pending") == 0
    with pytest.raises(NodeRefused, match="refused") as caught:
        client.send_raw(transaction(1, 10))
    assert "already" in caught.value.message
    with pytest.raises(NodeRefused) as caught:
        client.send_raw(transaction(1, 5))
    assert "underpriced" in caught.value.message
    second = client.send_raw(transaction(1, 20))
    lane = Lane(client, signer, SystemClock(), LanePolicy(deadline_seconds=30))
    lane.send(TO, b"")
    clock, never = SystemClock(), threading.Event()
    while client.receipt(second) is None:
        clock.wait(never, 0.05)
    assert client.receipt(first) is None
    with pytest.raises(NodeRefused) as caught:
        client.send_raw(transaction(0, 50))
    assert "nonce too low" in caught.value.message


def test_a_node_is_chosen_and_ends_with_its_owner(tmp_path, make_client: MakeClient) -> None:
    with start_node(tmp_path, SystemClock(), block_seconds=0) as node:
        assert node.process is not None
        assert node.name in ("anvil", "embedded py-evm")
        make_client(node.process).check_chain()
        external = start_node(tmp_path, SystemClock(), block_seconds=0, url=node.url)
        assert (external.name, external.process) == ("external", None)
        external.stop()
        assert node.process.is_running()
    assert not node.process.is_running()
