"""Targets: what a chain's node, a SHARDCAST server and a coordinator may answer, and what a relay may be asked."""

from __future__ import annotations

import atexit
import itertools
import json
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx
import rlp

from protocol import api
from protocol.bundle import ProofBundle
from protocol.canonical import hex0x, keccak256
from protocol.chain.abi import ErrorTable
from protocol.chain.client import NOT_MINED_YET, ChainClient
from protocol.chain.contracts import NAMES, abi_of
from protocol.chain.rpc import METHOD_NOT_FOUND, JsonRpc
from protocol.chain.sealed import SealedHeader, logs_of_receipt
from protocol.client import CoordinatorClient
from protocol.errors import ChainError, NotFound, Rejected, ShardCorrupt, Unreachable, VerificationFailed
from protocol.merkle.patricia import prove, proven_value
from protocol.shardcast.client import fetch
from protocol.shardcast.file_server import FileServer
from protocol.shardcast.origin import publish
from protocol.wire import WeightsRelease
from tests.fuzz.example import ADDRESS, HASH, example
from tests.fuzz.site import StandingClock, site
from tests.fuzz.target import Choices, Target


def decode_answer(data: bytes) -> None:
    """Results, events and errors of every contract, from any bytes."""
    for name in NAMES:
        for function in abi_of(name).functions:
            _tolerating(partial(abi_of(name).decode_result, function, data))
        for event in abi_of(name).events.values():
            indexed = [hex0x(data[32 * i :][:32].ljust(32, b"\0")) for i in range(len(event.inputs))]
            for count in range(len(indexed) + 1):
                _tolerating(partial(abi_of(name).decode_event, [event.topic, *indexed[:count]], data))
        _tolerating(partial(abi_of(name).decode_call, data))
    _tolerating(partial(_errors().decode, data))


def _tolerating(call: Callable[[], object]) -> None:
    try:
        call()
    except ChainError:
        return


@cache
def _errors() -> ErrorTable:
    return ErrorTable.of(map(abi_of, NAMES))


def _answers() -> list[bytes]:
    words = [(32).to_bytes(32, "big"), (2).to_bytes(32, "big"), b"\0" * 12 + b"\x5a" * 20, b"\xff" * 32]
    selectors = list(_errors().by_selector)
    return [
        b"".join(words) * 4,
        b"".join(words),
        words[1] * 12,
        *(selector + words[0] * 6 for selector in selectors[:4]),
    ]


_CALLS: tuple[Callable[[ChainClient], Any], ...] = (
    lambda client: client.check_chain(),
    lambda client: client.head(),
    lambda client: client.block(3),
    lambda client: client.confirmed_head(2),
    lambda client: list(client.logs([ADDRESS], 0, 5)),
    lambda client: client.code_hash(ADDRESS),
    lambda client: client.balance_wei(ADDRESS),
    lambda client: client.transaction_count(ADDRESS),
    lambda client: client.receipt(HASH),
    lambda client: client.call(ADDRESS, b"\1"),
    lambda client: client.estimate_gas(ADDRESS, ADDRESS, b""),
    lambda client: client.send_raw("0x00"),
    lambda client: client.rpc.batch([("eth_call", ()), ("eth_chainId", ())]),
    lambda client: list(client.blocks(3, 5)),
    lambda client: client.send_raw_mined("0x00"),
)


def ask_node(data: bytes) -> None:
    """Whatever the node answers, the first byte says to which call."""
    choices = Choices(data)
    call, body = choices.pick(_CALLS), choices.rest()
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=body))
    rpc = JsonRpc("http://node.test", transport=transport, clock=StandingClock())
    rpc._ids = itertools.count(1)
    try:
        call(ChainClient(rpc, 31337, _errors()))
    finally:
        rpc.close()


def _node_seeds() -> list[bytes]:
    log = {"address": ADDRESS, "topics": [HASH], "data": "0x00", "blockNumber": "0x1", "blockHash": HASH}
    log |= {"logIndex": "0x0", "transactionHash": HASH}
    block = {
        "number": "0x3",
        "hash": HASH,
        "parentHash": HASH,
        "timestamp": "0x5",
        "gasLimit": "0x9",
        "baseFeePerGas": "0x7",
    }
    receipt = {"transactionHash": HASH, "blockNumber": "0x1", "blockHash": HASH, "status": "0x1", "gasUsed": "0x5"}
    receipt |= {"contractAddress": ADDRESS, "logs": [log]}
    error = {"code": 3, "message": "execution reverted", "data": "0x08c379a0" + "00" * 64}
    results: list[Any] = ["0x7a69", block, block, block, [log], "0x00", "0x1", "0x2", receipt, "0x00", "0x5208", HASH]
    answers: list[Any] = [{"jsonrpc": "2.0", "id": 1, "result": result} for result in results]
    answers.append([{"id": 1, "result": "0x"}, {"id": 2, "result": "0x1"}])
    answers.append([{"id": 1 + i, "result": block | {"number": hex(3 + i)}} for i in range(3)])
    answers.append({"jsonrpc": "2.0", "id": 1, "result": receipt})
    seeds = [bytes([number]) + json.dumps(answer).encode() for number, answer in enumerate(answers)]
    unknown, late = ({"code": code, "message": "no"} for code in (METHOD_NOT_FOUND, NOT_MINED_YET))
    refusals = [(9, error), (13, unknown), (14, unknown), (14, late)]
    return seeds + [bytes([number]) + json.dumps({"id": 1, "error": why}).encode() for number, why in refusals]


@cache
def _published() -> tuple[Path, WeightsRelease]:
    folder = tempfile.TemporaryDirectory(prefix="proofpool-fuzz-shards-")
    atexit.register(folder.cleanup)
    root = Path(folder.name)
    (root / "checkpoint").mkdir()
    (root / "checkpoint" / "a.bin").write_bytes(b"abcdefghij")
    manifest = publish(root / "checkpoint", root / "origin", 1, 0, shard_bytes=4)
    release = WeightsRelease(pool_id=1, policy_version=0, manifest_hash=manifest.manifest_hash)
    return root, release


_SERVER_HEADERS = (
    {"content-encoding": "gzip"},
    {"content-encoding": "zstd, br"},
    {"content-length": "99999999999"},
    {"content-length": "-1"},
    {"transfer-encoding": "chunked"},
    {"retry-after": "99999999"},
    {"content-range": "bytes 0-9/10"},
    {"location": "http://elsewhere.test/" * 3},
    {"etag": '"' * 9},
    {},
)


def fetch_from_liar(data: bytes) -> None:
    """A server that answers each request as the input says; what is put together has the promised bytes."""
    root, release = _published()
    choices = Choices(data)

    def answer(request: httpx.Request) -> httpx.Response:
        honest = root / "origin" / request.url.path.lstrip("/")
        body = honest.read_bytes() if choices.below(4) and honest.exists() else choices.bytes(200)
        status = choices.pick((200, 200, 200, 206, 204, 301, 404, 416, 429, 500, 503))
        return httpx.Response(status, headers=choices.pick(_SERVER_HEADERS), content=body)

    destination = Path(tempfile.mkdtemp(dir=root))
    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        folder = fetch(http, ["http://relay.test"], release, destination, clock=StandingClock()).folder
    assert (folder / "a.bin").read_bytes() == b"abcdefghij"


@cache
def _relay() -> httpx.Client:
    root, _ = _published()
    server = FileServer(root / "origin", ("127.0.0.1", 0)).__enter__()  # a daemon thread's, as long as the process
    return httpx.Client(base_url=server.url)


_RELAY_PATHS = ("/versions/0/manifest.json", "/versions/0/shards/0", "/versions/0/shards/99", "/healthz", "/versions")


def ask_relay(data: bytes) -> None:
    """Any Range, conditional header and path: bytes of the version, or a refusal, and never an error of the relay's."""
    choices = Choices(data)
    path = choices.pick(_RELAY_PATHS) if choices.below(4) else "/versions/" + choices.bytes(60).decode("latin-1")
    names = ("range", "if-range", "if-none-match", "if-modified-since", "accept-encoding")
    headers = [(choices.pick(names).encode(), choices.bytes(120)) for _ in range(1 + choices.below(2))]
    try:
        request = _relay().build_request(choices.pick(("GET", "HEAD", "POST")), path, headers=headers)
    except (httpx.InvalidURL, UnicodeDecodeError):
        return
    try:
        answer = _relay().send(request)
    except httpx.LocalProtocolError:  # no header that a client can send
        return
    assert answer.status_code < 500 or (request.method == "POST" and answer.status_code == 501), answer.status_code
    assert "root:" not in answer.text and len(answer.content) < 1 << 16


def _relay_seeds() -> list[bytes]:
    ranges = (
        b"bytes=0-3",
        b"bytes=-2",
        b"bytes=2-",
        b"bytes=0-0,2-3,5-",
        b"bytes=9-1",
        b"items=0-1",
        b"bytes=" + b"0-," * 30,
    )
    return [bytes([1, 1, 0, 0, len(value)]) + value for value in ranges] + [bytes([0, 20]) + b"../../../etc/passwd"]


_QUESTIONS: tuple[Callable[[CoordinatorClient], Any], ...] = (
    lambda client: client.pool(),
    lambda client: client.rules(HASH),
    lambda client: client.lease(0),
    lambda client: client.open_tasks(),
    lambda client: client.submission(HASH),
    lambda client: client.submissions(),
    lambda client: client.case(HASH),
    lambda client: client.assignments(ADDRESS),
    lambda client: client.lease_batch(1),
    lambda client: client.weights(0),
    lambda client: client.newest_earnings(),
    lambda client: client.epochs(),
    lambda client: client.inclusion(0),
    lambda client: client.bundle(HASH),
    lambda client: client.trace(HASH),
    lambda client: client.status(),
    lambda client: client.entries(0),
)
_ANSWERS = (api.PoolInfo, ProofBundle, api.SubmissionView, api.CaseFile, api.BatchOffer, api.WeightsView, api.Status)


def ask_coordinator(data: bytes) -> None:
    """Whatever a coordinator answers: three bytes of question, status and header, then the body."""
    choices = Choices(data)
    question = choices.pick(_QUESTIONS)
    status = choices.pick((200, 200, 204, 302, 404, 422, 500))
    kind = choices.pick(("application/json", "text/html; charset=klingon", "application/problem+json", ""))
    body = choices.rest()
    transport = httpx.MockTransport(lambda _: httpx.Response(status, headers={"content-type": kind}, content=body))
    client = CoordinatorClient("http://coordinator.test", transport=transport)
    try:
        question(client)
    finally:
        client.close()


def _coordinator_seeds() -> list[bytes]:
    with site().http() as http:
        honest = [http.get(path).content for path in ("/v1/pool", "/v1/status", "/v1/log/entries", "/v1/epochs")]
    problem = example(api.Problem)
    return (
        [bytes([n, 0, 0]) + body for n, body in zip((0, 15, 16, 11), honest, strict=True)]
        + [bytes([n % len(_QUESTIONS), 0, 0]) + example(shape) for n, shape in enumerate(_ANSWERS)]
        + [bytes([0, 5, 2]) + problem]
    )


def read_sealed(data: bytes) -> None:
    """A header, a node of a trie and a receipt of any bytes, under their own hashes, since no others are parsed."""
    for read in (SealedHeader.of, _in_trie, _in_receipt):
        try:
            read(data)
        except VerificationFailed:
            continue


def _in_trie(data: bytes) -> None:
    for key in (b"", b"\x80", data[:2]):
        proven_value(keccak256(data), key, [data, data[1:]])


def _in_receipt(data: bytes) -> None:
    if data:
        root, path = prove({b"\x80": data}, b"\x80")
        for log in logs_of_receipt(root, 0, path):
            _tolerating(partial(abi_of("ledger").decode_event, log.topics, log.data))


def _sealed_seeds() -> list[bytes]:
    header = [bytes(32)] * 6 + [bytes(256)] + [b"\1"] * 4 + [b"time", b"", bytes(32), bytes(8), b"\7"]
    topics = [bytes.fromhex(abi_of("ledger").topic("EpochCommitted")[2:]), bytes(32), bytes(32)]
    receipt = [b"\1", b"\x52\x08", bytes(256), [[bytes(20), topics, bytes(96)]]]
    nodes = ([b"\x20", b"value" * 9], [b"\x11", bytes(32)], [b""] * 16 + [b"value"])
    return [rlp.encode(header), b"\2" + rlp.encode(receipt), *map(rlp.encode, nodes)]


CHAIN_TARGETS = (
    Target("sealed", read_sealed, (), _sealed_seeds),
    Target("abi", decode_answer, (), _answers),
    Target("node_answer", ask_node, (ChainError,), _node_seeds),
    Target(
        "relay_answer", fetch_from_liar, (ShardCorrupt, Unreachable), lambda: [bytes(range(1, 60)), b"\1\0\x09" * 20]
    ),
    Target("relay_request", ask_relay, (), _relay_seeds),
    Target("coordinator_answer", ask_coordinator, (Unreachable, NotFound, Rejected), _coordinator_seeds),
)
