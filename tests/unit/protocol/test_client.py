"""The coordinator's client: answers of the agreed form, and an error of ours for everything else."""

import gzip
from collections.abc import Callable, Iterator

import httpx
import pytest

import protocol.client
from protocol.client import MAX_ANSWER_BYTES, CoordinatorClient
from protocol.errors import CoordinatorUnreachable, ProofpoolError, Rejected, UsageError
from protocol.reasons import RejectReason
from protocol.unfolding import MAX_VALUES


def client(answer: Callable[[httpx.Request], httpx.Response]) -> CoordinatorClient:
    return CoordinatorClient("http://coordinator", transport=httpx.MockTransport(answer))


def test_an_answer_of_the_agreed_form_is_read() -> None:
    assert client(lambda request: httpx.Response(200, content=b"[]")).assignments("0x" + "00" * 20) == []
    assert client(lambda request: httpx.Response(204)).newest_earnings() is None


@pytest.mark.parametrize("content", [b"", b"<html>", b"{}", b'[{"nonsense": 1}]', b"\xff\xfe", b"NaN"])
def test_nonsense_is_as_good_as_silence(content: bytes) -> None:
    speaking = client(lambda request: httpx.Response(200, content=content))
    with pytest.raises(CoordinatorUnreachable, match="can't be used"):
        speaking.pool()
    with pytest.raises(CoordinatorUnreachable, match="can't be used"):
        speaking.assignments("0x" + "00" * 20)


def test_a_body_that_does_not_unpack_is_as_good_as_silence() -> None:
    broken = client(lambda request: httpx.Response(200, headers={"Content-Encoding": "gzip"}, content=b"not gzip"))
    with pytest.raises(CoordinatorUnreachable):
        broken.pool()


@pytest.mark.parametrize("encoding", ["utf-8", "zlib", "bz2", "hex", "unicode_escape", "idna", "undefined", "utf-16"])
def test_the_encoding_that_an_answer_names_is_not_used(encoding: str) -> None:
    """It may be one that unfolds, or makes no text."""
    headers = {"Content-Type": f"text/plain; charset={encoding}"}
    speaking = client(lambda request: httpx.Response(200, headers=headers, content=b"\\ud800 log\n"))
    assert speaking.checkpoint() == "\\ud800 log\n"
    failing = client(lambda request: httpx.Response(500, headers=headers, content=b"\\ud800 broke"))
    with pytest.raises(CoordinatorUnreachable, match="failed") as caught:
        failing.checkpoint()
    assert caught.value.why.endswith("HTTP 500 \\ud800 broke")


def test_an_answer_without_end_is_left_at_the_limit() -> None:
    taken: list[int] = []

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(1 << 20)
            yield b" " * (1 << 20)

    with pytest.raises(CoordinatorUnreachable, match="longer than"):
        client(lambda request: httpx.Response(200, content=endless())).pool()
    assert sum(taken) == MAX_ANSWER_BYTES + (1 << 20)


@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_that_unfolds_is_not_unfolded(status: int) -> None:
    """Two bytes a value: 64 MB of them would take 3 GB."""
    brackets = b"[" + b"{}," * (MAX_VALUES // 2) + b"{}]"
    serving = client(lambda request: httpx.Response(status, content=brackets))
    with pytest.raises(
        CoordinatorUnreachable, match=f"may hold {MAX_VALUES + 3} values" if status == 200 else "failed"
    ):
        serving.entries(0)


def test_a_file_of_the_longest_kind_is_read_and_a_longer_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = client(lambda request: httpx.Response(200, content=b"12345678"))
    monkeypatch.setattr(protocol.client, "MAX_FILE_BYTES", 8)
    assert serving.submission_file("0x" + "00" * 32) == b"12345678"
    monkeypatch.setattr(protocol.client, "MAX_FILE_BYTES", 7)
    with pytest.raises(CoordinatorUnreachable, match="longer than 7 bytes"):
        serving.submission_file("0x" + "00" * 32)


def test_an_answer_that_would_have_to_be_unpacked_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(b"[]")
    offering = client(lambda request: httpx.Response(200, headers={"Content-Encoding": "gzip"}, content=packed))
    with pytest.raises(CoordinatorUnreachable, match="encoded as gzip"):
        offering.assignments("0x" + "00" * 20)


def test_a_problem_document_is_a_refusal_and_any_other_failure_is_not() -> None:
    problem = b'{"type": "about:blank", "title": "t", "status": 403, "code": "understaked", "value": "1"}'
    with pytest.raises(Rejected) as refusal:
        client(lambda request: httpx.Response(403, content=problem)).pool()
    assert (refusal.value.reason, refusal.value.value) == (RejectReason.UNDERSTAKED, "1")
    with pytest.raises(CoordinatorUnreachable, match=r"GET http.*/v1/pool: HTTP 502 bad gateway \| is that a coordin"):
        client(lambda request: httpx.Response(502, content=b"bad gateway")).pool()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("0", 0), ("100000", 300), ("", 0), ("-3", 0), ("1.5", 0), ("soon", 0), ("9" * 400, 0), ("٣", 0)],
)
def test_a_refusal_says_how_long_it_asks_to_be_left_alone(header: str, seconds: int) -> None:
    problem = b'{"type":"t","title":"t","status":429,"code":"no_demand"}'
    for content, kind in ((problem, Rejected), (b"busy", CoordinatorUnreachable)):
        busy = httpx.Response(503, headers=[(b"Retry-After", header.encode())], content=content)
        with pytest.raises(kind) as caught:
            client(lambda request, busy=busy: busy).lease(0)  # type: ignore[misc]
        assert caught.value.retry_after_seconds == seconds


def test_a_refusal_that_asks_for_nothing_may_be_asked_again_at_once() -> None:
    with pytest.raises(CoordinatorUnreachable) as caught:
        client(lambda request: httpx.Response(503)).lease(0)
    assert caught.value.retry_after_seconds == 0


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/pool", "/v1/pool/"])
def test_a_coordinators_url_may_be_the_one_of_an_endpoint(path: str) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(404)

    at = CoordinatorClient(f"http://pool:8700{path}", transport=httpx.MockTransport(answer))
    with pytest.raises(ProofpoolError):
        at.pool()
    assert (at.url, asked) == ("http://pool:8700", ["http://pool:8700/v1/pool"])


@pytest.mark.parametrize("url", ["127.0.0.1:52699", "pool.example"])
def test_a_url_without_a_scheme_is_said_to_lack_it(url: str) -> None:
    with pytest.raises(UsageError) as error:
        CoordinatorClient(url)
    assert error.value.todo == f"put http:// in front: http://{url}"
