"""JSON-RPC: what is answered, what is refused, and what is tried again."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest

import protocol.chain.rpc
from protocol.chain.rpc import JsonRpc
from protocol.client import CoordinatorClient
from protocol.errors import ChainError, NodeRefused, UsageError
from protocol.unfolding import check_unfolding

Serve = Callable[[httpx.Request], httpx.Response]


class CountingClock:
    """Waits are counted, not waited for."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now(self) -> float:
        return sum(self.waits)

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        return stop.is_set()


def rpc(serve: Serve, clock: CountingClock | None = None) -> JsonRpc:
    return JsonRpc("http://node", clock=clock or CountingClock(), transport=httpx.MockTransport(serve))


def answer(result: Any) -> Serve:
    def serve(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": json.loads(request.content)["id"], "result": result})

    return serve


def test_a_call_gives_its_result_even_if_null() -> None:
    assert rpc(answer("0x1")).call("eth_chainId") == "0x1"
    assert rpc(answer(None)).call("eth_getTransactionReceipt", "0x") is None


def test_a_refusal_carries_code_and_data() -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        error = {"code": 3, "message": "execution reverted", "data": "0x01"}
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "error": error})

    with pytest.raises(NodeRefused) as caught:
        rpc(serve).call("eth_call", {})
    assert (caught.value.code, caught.value.data, caught.value.method) == (3, "0x01", "eth_call")


def test_a_batch_is_ordered_by_id_and_raises_the_first_error() -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        calls = json.loads(request.content)
        answers = [{"id": c["id"], "result": c["method"]} for c in reversed(calls) if c["method"] != "bad"]
        answers += [{"id": c["id"], "error": {"code": 1, "message": "no"}} for c in calls if c["method"] == "bad"]
        return httpx.Response(200, json=answers)

    node = rpc(serve)
    assert node.batch([("a", []), ("b", [1]), ("c", [])]) == ["a", "b", "c"]
    assert node.batch([]) == []
    with pytest.raises(NodeRefused, match="refused"):
        node.batch([("a", []), ("bad", [])])


def test_a_broken_connection_is_tried_again_with_growing_pauses() -> None:
    failures = iter([httpx.ConnectError("refused"), httpx.RemoteProtocolError("closed")])

    def serve(request: httpx.Request) -> httpx.Response:
        if (failure := next(failures, None)) is not None:
            raise failure
        return answer("0x1")(request)

    clock = CountingClock()
    assert rpc(serve, clock).call("eth_chainId") == "0x1"
    assert clock.waits == [0.25, 0.5]


def test_a_node_that_stays_away_is_an_error_after_some_attempts() -> None:
    calls: list[int] = []

    def serve(request: httpx.Request) -> httpx.Response:
        calls.append(1)
        raise httpx.ConnectError("refused")

    with pytest.raises(ChainError, match="can't be reached"):
        rpc(serve).call("eth_chainId")
    assert len(calls) == 4


def test_a_deadline_that_passes_is_not_tried_again() -> None:
    calls: list[int] = []

    def serve(request: httpx.Request) -> httpx.Response:
        calls.append(1)
        raise httpx.ReadTimeout("slow")

    with pytest.raises(ChainError, match="in time"):
        rpc(serve).call("eth_chainId")
    assert len(calls) == 1


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(502),
        httpx.Response(200, content=b"<html>"),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"id": 1}),
        httpx.Response(200, json="x"),
        httpx.Response(200, json={"id": 1, "error": "no"}),
        httpx.Response(200, json={"id": 1, "error": {"code": "x", "message": 5}}),
        httpx.Response(200, content=b"[" * 100_000),
    ],
)
def test_answers_that_are_no_json_rpc_are_errors(response: httpx.Response) -> None:
    with pytest.raises(ChainError):
        rpc(lambda _: response).call("eth_chainId")


def test_an_answer_that_unfolds_is_not_unfolded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol.chain.rpc, "check_unfolding", partial(check_unfolding, most=20))
    assert rpc(answer([0] * 10)).call("eth_getLogs") == [0] * 10
    with pytest.raises(ChainError, match="values, and 20 are read at most"):
        rpc(answer([0] * 20)).call("eth_getLogs")


def test_an_answer_that_is_packed_is_not_unpacked() -> None:
    """Nor asked for: in layers it has no bound."""
    asked: list[str] = []
    body = b'{"id": 1, "result": "0x1"}'

    def serve(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["accept-encoding"])
        headers = {} if len(asked) == 1 else {"content-encoding": "gzip, gzip"}
        return httpx.Response(200, stream=httpx.ByteStream(body if not headers else packed(body)), headers=headers)

    def packed(data: bytes) -> bytes:
        return gzip.compress(gzip.compress(data))

    node = rpc(serve)
    assert node.call("eth_chainId") == "0x1"
    with pytest.raises(ChainError, match="encoded as gzip, gzip"):
        node.call("eth_chainId")
    assert asked == ["identity"] * 2


def test_an_answer_without_end_is_left_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = httpx.Response(200, json={"id": 1, "result": "0x1"})
    monkeypatch.setattr(protocol.chain.rpc, "MAX_ANSWER_BYTES", len(answer.content))
    assert rpc(lambda _: answer).call("eth_chainId") == "0x1"
    taken: list[int] = []

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(1)
            yield b" "

    with pytest.raises(ChainError, match="too long"):
        rpc(lambda _: httpx.Response(200, content=endless())).call("eth_chainId")
    assert len(taken) == len(answer.content) + 1


@pytest.mark.parametrize("url", ["http://a\x01b", "http://\udcff"])
def test_what_is_no_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="URL"):
        JsonRpc(url).call("eth_chainId")
    with pytest.raises(UsageError, match="URL"):
        CoordinatorClient(url)


@pytest.mark.parametrize("answers", [[{"id": [], "result": 1}], [{"id": None}], [5], [], {}])
def test_batches_that_are_no_answer_are_errors(answers: object) -> None:
    with pytest.raises(ChainError):
        rpc(lambda _: httpx.Response(200, json=answers)).batch([("eth_chainId", [])])
