"""Either local node serves our client: state, calls, refusals, logs, time, snapshots."""

from collections.abc import Callable
from typing import Any

import pytest

from protocol.canonical import from_hex0x, hex0x
from protocol.chain.client import ChainClient
from protocol.chain.journal import Journal
from protocol.chain.lane import Lane
from protocol.chain.transaction import Transaction
from protocol.clock import SystemClock
from protocol.errors import NodeRefused, TransactionReverted
from testnet.chain.genesis import BALANCE_WEI, dev_signers
from testnet.chain.process import NodeProcess
from tests.probe_contract import probe_abi

NOBODY = "0x" + "5e" * 20
WORK = {"pool_id": 7, "content_hash": "0x" + "c0" * 32, "node": NOBODY, "amounts_wei": (1, 2**127)}


def read(client: ChainClient, probe: str, function: str, *arguments: Any, block: int | str = "latest") -> Any:
    data = client.call(probe, probe_abi().encode_call(function, *arguments), block=block)
    return probe_abi().decode_result(function, data)


def store(lane: Lane, probe: str, value: int, note: str = "") -> Any:
    return lane.send(probe, probe_abi().encode_call("store", 7, value, note))


def test_the_chain_is_the_one_we_expect_and_its_accounts_are_funded(client: ChainClient) -> None:
    client.check_chain()
    assert client.balance_wei(dev_signers(19)[18].address) == BALANCE_WEI
    assert client.balance_wei(NOBODY) == 0
    assert client.transaction_count(NOBODY) == 0


def test_what_is_sent_can_be_read(client: ChainClient, lane: Lane, probe: str) -> None:
    assert read(client, probe, "value") == 5
    receipt = store(lane, probe, 2**200)
    assert receipt.succeeded
    assert read(client, probe, "value") == 2**200
    assert read(client, probe, "value", block=receipt.block_number - 1) == 5
    assert receipt.block_number == client.head().number
    assert 21_000 < receipt.gas_used < 100_000


def test_a_mined_transaction_can_be_read_with_its_calldata(client: ChainClient, lane: Lane, probe: str) -> None:
    receipt = store(lane, probe, 77)
    found = client.rpc.call("eth_getTransactionByHash", receipt.transaction_hash)
    assert (found["from"], found["to"], int(found["value"], 16)) == (lane.address, probe, 0)
    assert f"{77:064x}" in found["input"]
    assert int(found["blockNumber"], 16) == receipt.block_number
    assert client.rpc.call("eth_getTransactionByHash", "0x" + "77" * 32) is None


def test_structs_and_bytes_survive_the_contract(client: ChainClient, probe: str) -> None:
    assert read(client, probe, "echo", WORK, "0xdeadbeef", True) == (WORK, "0xdeadbeef", True)


def test_a_refusal_is_named_with_its_values(client: ChainClient, lane: Lane, probe: str) -> None:
    with pytest.raises(TransactionReverted) as caught:
        store(lane, probe, 3)
    assert (caught.value.name, caught.value.arguments) == ("TooSmall", (3, 10, lane.address))
    with pytest.raises(TransactionReverted) as caught:
        read(client, probe, "refuse", "not today")
    assert (caught.value.name, caught.value.arguments) == ("Error", ("not today",))
    with pytest.raises(TransactionReverted) as caught:
        read(client, probe, "divide", 1, 0)
    assert (caught.value.name, caught.value.arguments) == ("Panic", (0x12,))


def test_a_transaction_can_still_fail_after_its_gas_was_given(client: ChainClient, lane: Lane, probe: str) -> None:
    before = client.transaction_count(lane.address)
    with pytest.raises(TransactionReverted) as caught:
        lane.send(probe, probe_abi().encode_call("storeInBlock", 1), gas_limit=100_000)
    assert caught.value.name == "TooSmall"
    assert client.transaction_count(lane.address) == before + 1


def test_events_are_found_by_address_and_block(client: ChainClient, lane: Lane, probe: str) -> None:
    receipts = [store(lane, probe, 10 + i, "naïve") for i in range(3)]
    first, last = receipts[0].block_number, receipts[-1].block_number
    logs = list(client.logs([probe], first, last))
    events = [probe_abi().decode_event(log.topics, log.data) for log in logs]
    assert [event.arguments["value"] for event in events if event] == [10, 11, 12]
    assert [event.arguments["note"] for event in events if event] == ["naïve"] * 3
    assert logs == [log for receipt in receipts for log in receipt.logs]
    assert list(client.logs([probe], last, last + 100)) == logs[-1:]
    assert list(client.logs([NOBODY], first, last)) == []


def test_logs_can_be_asked_for_by_topic(client: ChainClient, lane: Lane, probe: str) -> None:
    block = hex(store(lane, probe, 10).block_number)
    topic, other = probe_abi().topic("Stored"), "0x" + "00" * 32
    for topics, count in [([topic], 1), ([other], 0), ([[other, topic]], 1), ([None, other], 0), ([None, None], 1)]:
        query = {"address": probe, "fromBlock": block, "toBlock": block, "topics": topics}
        assert len(client.rpc.call("eth_getLogs", query)) == count


def test_blocks_are_linked_and_their_hashes_known_to_contracts(client: ChainClient, lane: Lane, probe: str) -> None:
    store(lane, probe, 10)
    head = client.head()
    parent = client.block(head.number - 1)
    assert parent is not None
    assert head.parent_hash == parent.block_hash
    assert head.timestamp >= parent.timestamp
    seen = read(client, probe, "head")
    assert seen == {"num_blocks": head.number, "parent_hash": parent.block_hash, "time": head.timestamp}
    assert read(client, probe, "hashOf", head.number + 5) == "0x" + "00" * 32
    assert client.block(head.number + 5) is None


def test_a_beacon_block_is_forgotten_after_256(client: ChainClient, lane: Lane, probe: str) -> None:
    old = client.head()
    for _ in range(257):
        client.rpc.call("evm_mine")
    store(lane, probe, 10)
    assert read(client, probe, "hashOf", old.number) == "0x" + "00" * 32
    recent = client.block(client.head().number - 200)
    assert recent is not None
    assert read(client, probe, "hashOf", recent.number) == recent.block_hash


def test_code_is_where_a_contract_is(client: ChainClient, probe: str) -> None:
    assert len(client.code(probe)) > 500
    assert client.code(NOBODY) == b""
    assert client.code_hash(NOBODY) == "0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"


def test_time_moves_ahead_with_the_next_block(client: ChainClient) -> None:
    before = client.head()
    client.rpc.call("evm_increaseTime", 3600)
    client.rpc.call("evm_mine")
    assert 3600 <= client.head().timestamp - before.timestamp < 3700


def test_a_snapshot_brings_the_state_back_once(client: ChainClient, make_lane: Callable[..., Lane], probe: str) -> None:
    snapshot, head = client.rpc.call("evm_snapshot"), client.head()
    store(make_lane(client), probe, 99)
    assert read(client, probe, "value") == 99
    assert client.rpc.call("evm_revert", snapshot) is True
    assert read(client, probe, "value") == 5
    assert client.head() == head
    assert client.rpc.call("evm_revert", snapshot) is False
    assert store(make_lane(client), probe, 77).block_number == head.number + 1
    assert read(client, probe, "value") == 77


def test_time_that_was_passed_is_undone_with_the_rest(client: ChainClient) -> None:
    snapshot, head = client.rpc.call("evm_snapshot"), client.head()
    client.rpc.call("evm_increaseTime", 10**6)
    client.rpc.call("evm_mine")
    assert client.head().timestamp >= head.timestamp + 10**6
    assert client.rpc.call("evm_revert", snapshot) is True
    client.rpc.call("evm_mine")
    assert client.head().timestamp < head.timestamp + 10**5


def test_fees_follow_the_base_fee(client: ChainClient) -> None:
    history = client.rpc.call("eth_feeHistory", "0x2", "latest", [50])
    assert len(history["baseFeePerGas"]) == 3
    assert int(history["baseFeePerGas"][-2], 16) == client.head().base_fee_wei
    assert int(client.rpc.call("eth_gasPrice"), 16) > client.head().base_fee_wei


def test_several_calls_go_in_one_request(client: ChainClient, probe: str) -> None:
    answers = client.rpc.batch([("eth_chainId", []), ("eth_blockNumber", []), ("net_version", [])])
    assert answers == [hex(31337), hex(client.head().number), "31337"]


def test_unknown_methods_and_bad_transactions_are_refused(client: ChainClient) -> None:
    with pytest.raises(NodeRefused) as caught:
        client.rpc.call("eth_noSuchMethod")
    assert caught.value.code == -32601
    for raw in ("0x", "0x02", "0x02c0", "0x" + "ff" * 100):
        with pytest.raises(NodeRefused):
            client.send_raw(raw)


def test_an_account_without_funds_can_not_send(client: ChainClient, make_signer: Callable[[int], Any]) -> None:
    poor = Lane(client, make_signer(123456), SystemClock())
    with pytest.raises(NodeRefused, match="refused"):
        poor.send(NOBODY, b"", value_wei=1, gas_limit=21_000)


def test_what_an_earlier_process_had_on_its_way_is_sent_once(client: ChainClient, probe: str) -> None:
    signer, journal, call = dev_signers(1)[0], Journal(), probe_abi().encode_call("store", 1, 50, "")
    nonce = client.transaction_count(signer.address)
    signed = Transaction(31337, nonce, 10**9, 10**12, 100_000, probe, 0, call).sign(signer)
    journal.keep(signed, SystemClock().now())
    for _ in range(100):  # a node may tell of the transaction a moment before it has mined it
        assert Lane(client, signer, SystemClock(), journal=journal).resume()
        if not journal.unsettled(31337, signer.address):
            break
    assert journal.unsettled(31337, signer.address) == []
    assert client.transaction_count(signer.address) == nonce + 1
    assert read(client, probe, "value") == 50


def test_a_mined_failure_is_decoded(client: ChainClient, lane: Lane, probe: str) -> None:
    """Both refuse in the block, and not before: with gas given, no estimate finds them out."""
    with pytest.raises(TransactionReverted, match="failed in block .*: TooSmall") as caught:
        lane.send(probe, probe_abi().encode_call("store", 1, 3, ""), gas_limit=100_000)
    assert caught.value.arguments == (3, 10, lane.address)
    with pytest.raises(TransactionReverted, match="out of gas"):
        lane.send(probe, probe_abi().encode_call("store", 1, 300, "a" * 200), gas_limit=30_000)


def test_gas_is_given_where_it_is_asked_for(client: ChainClient) -> None:
    before = client.balance_wei(NOBODY)
    client.rpc.call("anvil_setBalance", NOBODY, hex(before + 12345))
    client.rpc.call("evm_mine")
    assert client.balance_wei(NOBODY) == before + 12345


def test_a_reorg_puts_other_blocks_in_the_place_of_the_newest(client: ChainClient, lane: Lane, probe: str) -> None:
    kept = client.head()
    receipt = store(lane, probe, 60)
    client.rpc.call("evm_mine")
    old = client.head()
    client.rpc.call("anvil_reorg", 2, [])
    new = client.head()
    assert new.number == old.number and new.block_hash != old.block_hash
    assert client.block(kept.number) == kept
    assert client.receipt(receipt.transaction_hash) is None
    assert read(client, probe, "value") == 5
    assert list(client.logs([probe], kept.number + 1, new.number)) == []


def test_a_deployment_without_enough_gas_fails(client: ChainClient, lane: Lane) -> None:
    data = from_hex0x("0x60016000fd")  # returns nothing: PUSH, PUSH, REVERT
    with pytest.raises(TransactionReverted):
        lane.send(None, data)
    assert hex0x(client.code(lane.address)) == "0x"


def test_the_node_is_a_process_of_its_own(node: NodeProcess) -> None:
    assert node.is_running()
    assert node.pid > 0
