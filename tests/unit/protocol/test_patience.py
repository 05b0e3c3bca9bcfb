"""Peers that send a byte now and then, over real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from protocol.chain.rpc import JsonRpc
from protocol.client import CoordinatorClient
from protocol.errors import ChainError, CoordinatorUnreachable
from protocol.patience import LEAST_BYTES_PER_SECOND, impatient

TIMEOUT_SECONDS = 0.3
PAUSE_SECONDS = 0.05
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n"


@contextmanager
def speaking(pieces: Iterable[bytes]) -> Iterator[str]:
    """The URL of a server that answers every request with these pieces, a pause before each."""
    over = threading.Event()

    def answer(line: socket.socket) -> None:
        with line:
            line.settimeout(5)
            while line.recv(1 << 16):
                for piece in pieces:
                    if over.wait(PAUSE_SECONDS):
                        return
                    line.sendall(piece)

    def serve(listener: socket.socket) -> None:
        while not over.is_set():
            try:
                line, _ = listener.accept()
                answer(line)
            except OSError:
                continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


def drips(text: bytes) -> list[bytes]:
    return [text[i : i + 1] for i in range(len(text))]


@pytest.mark.parametrize("pieces", [[HEAD + b"\r\n", *[b" "] * 1000], drips(HEAD)], ids=["body", "head"])
def test_a_byte_now_and_then_is_as_good_as_silence(pieces: list[bytes]) -> None:
    with speaking(pieces) as url:
        client, rpc = CoordinatorClient(url, timeout_seconds=TIMEOUT_SECONDS), JsonRpc(url, timeout_seconds=0.3)
        with pytest.raises(CoordinatorUnreachable, match="doesn't answer"):
            client.pool()
        with pytest.raises(ChainError, match="in time"):
            rpc.call("eth_chainId")
        client.close()
        rpc.close()


def test_a_long_answer_takes_its_time() -> None:
    """Longer than the timeout in all, at more than the least rate; and the next request has its own time."""
    piece = b"x" * (LEAST_BYTES_PER_SECOND // 8)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {20 * len(piece)}\r\n\r\n".encode()
    with speaking([head, *[piece] * 20]) as url, impatient(httpx.Client(timeout=TIMEOUT_SECONDS)) as http:
        for _ in range(2):
            answer = http.get(url)
            assert len(answer.content) == 20 * len(piece)
            assert answer.elapsed.total_seconds() > TIMEOUT_SECONDS


def test_what_has_no_connection_is_left_as_it_is() -> None:
    client = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(204)))
    assert impatient(client).get("http://nowhere.test").status_code == 204
