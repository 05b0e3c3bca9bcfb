"""Our ABI binding against web3's, on a contract with every kind of value that ours use."""

from types import SimpleNamespace

import pytest
from web3 import Web3

from protocol.canonical import from_hex0x, hex0x
from protocol.chain.abi import ContractAbi, ErrorTable, snake_case
from protocol.errors import ChainError, UsageError
from tests.probe_contract import probe_abi, probe_abi_json

NODE = "0x" + "ab" * 20
WORK = {"pool_id": 7, "content_hash": "0x" + "c0" * 32, "node": NODE, "amounts_wei": (1, 2**127)}
WEB3_WORK = {
    "poolId": 7,
    "contentHash": from_hex0x(WORK["content_hash"]),
    "node": Web3.to_checksum_address(NODE),
    "amountsWei": [1, 2**127],
}


def web3_probe():
    return Web3().eth.contract(abi=probe_abi_json())


@pytest.mark.parametrize(
    ("function", "ours", "theirs"),
    [
        ("store", (3, 2**255, "naïve"), (3, 2**255, "naïve")),
        ("divide", (1, 0), (1, 0)),
        ("echo", (WORK, "0xdeadbeef", True), (WEB3_WORK, b"\xde\xad\xbe\xef", True)),
        ("echo", (SimpleNamespace(**WORK), b"", False), (WEB3_WORK, b"", False)),
        ("value", (), ()),
    ],
)
def test_calls_are_encoded_as_web3_does(function: str, ours: tuple, theirs: tuple) -> None:
    assert hex0x(probe_abi().encode_call(function, *ours)) == web3_probe().encode_abi(function, list(theirs))


def test_a_call_reads_back_as_it_was_written() -> None:
    data = probe_abi().encode_call("echo", WORK, "0xdeadbeef", True)
    assert probe_abi().decode_call(data) == ("echo", (WORK, "0xdeadbeef", True))
    with pytest.raises(ChainError, match="no function"):
        probe_abi().decode_call(b"\0\0\0\0")


def test_named_results_are_a_dict_and_single_ones_bare() -> None:
    abi = probe_abi()
    result = (5).to_bytes(32, "big") + b"\xaa" * 32 + (9).to_bytes(32, "big")
    assert abi.decode_result("head", result) == {"num_blocks": 5, "parent_hash": "0x" + "aa" * 32, "time": 9}
    assert abi.decode_result("value", (5).to_bytes(32, "big")) == 5


@pytest.mark.parametrize("answer", [b"", b"\x01", b"\xff" * 31])
def test_an_answer_that_does_not_fit_is_an_error(answer: bytes) -> None:
    with pytest.raises(ChainError, match="doesn't fit its ABI"):
        probe_abi().decode_result("value", answer)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("store", (1, 2)),
        ("store", (2**64, 2, "")),
        ("store", (-1, 2, "")),
        ("store", ("1", 2, "")),
        ("echo", ({"pool_id": 7}, b"", True)),
        ("echo", (WORK | {"content_hash": "0x" + "c0" * 33}, b"", True)),
        ("echo", (WORK | {"node": "0x12"}, b"", True)),
        ("echo", (WORK, "no hex", True)),
        ("nothing", ()),
    ],
)
def test_what_does_not_fit_the_types_is_refused(function: str, arguments: tuple) -> None:
    with pytest.raises(UsageError):
        probe_abi().encode_call(function, *arguments)


def test_events_give_their_arguments_by_name() -> None:
    abi = probe_abi()
    topics = [abi.topic("Stored"), "0x" + f"{7:064x}", "0x" + "00" * 12 + "ab" * 20]
    data = from_hex0x("0x" + f"{64:064x}" + f"{12:064x}" + f"{2:064x}" + b"hi".hex().ljust(64, "0"))
    event = abi.decode_event(topics, data)
    assert event is not None
    assert (event.name, event.arguments) == ("Stored", {"pool_id": 7, "sender": NODE, "note": "hi", "value": 12})
    assert abi.decode_event(["0x" + "00" * 32], data) is None
    assert abi.decode_event([], b"") is None
    for wrong in (topics[:2], [*topics, topics[1]]):
        with pytest.raises(ChainError, match="topics"):
            abi.decode_event(wrong, data)


def test_custom_and_builtin_errors_are_named() -> None:
    table = ErrorTable.of([probe_abi()])
    words = f"{3:064x}" + f"{10:064x}" + "00" * 12 + "ab" * 20
    entry = probe_abi().errors["TooSmall"]
    found = table.decode(entry.selector + bytes.fromhex(words))
    assert found is not None
    assert (found.name, found.arguments) == ("TooSmall", (3, 10, NODE))
    panic = table.decode(bytes.fromhex("4e487b71" + f"{0x12:064x}"))
    assert panic is not None
    assert (panic.name, panic.arguments) == ("Panic", (0x12,))
    assert table.decode(b"\x01\x02\x03\x04") is None
    assert table.decode(b"") is None


def test_overloads_go_by_their_full_signature() -> None:
    def function(kind: str) -> dict:
        return {"type": "function", "name": "put", "inputs": [{"name": "x", "type": kind}], "outputs": []}

    abi = ContractAbi([function("uint8"), function("bool")])
    assert abi.encode_call("put(bool)", True)[-1] == 1
    with pytest.raises(UsageError, match="no such function"):
        abi.encode_call("put", True)


@pytest.mark.parametrize(
    ("name", "snake"),
    [("poolId", "pool_id"), ("root", "root"), ("activeFromEpoch", "active_from_epoch"), ("pools_", "pools_"), ("", "")],
)
def test_names_become_snake_case(name: str, snake: str) -> None:
    assert snake_case(name) == snake
