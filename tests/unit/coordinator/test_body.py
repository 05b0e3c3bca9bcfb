"""How much all requests together hold in memory: over the limit they are told to come again, and nothing leaks."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from coordinator.api.body import BODY, BodyLimit

SCOPE = {"type": "http", "method": "PUT", "path": "/"}


class Server:
    """An application behind the limit that notes the bodies it gets, and does `meanwhile` before it answers."""

    def __init__(self, limit: int = 100, most_held_bytes: int = 150) -> None:
        self.bodies: list[bytes] = []
        self.meanwhile: list[Any] = []
        self.fails = False
        self.layer = BodyLimit(self.app, lambda method: limit, most_held_bytes)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.bodies.append(scope[BODY])
        while self.meanwhile:
            await self.meanwhile.pop()()
        if self.fails:
            raise RuntimeError("a bug")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def put(self, *chunks: bytes, ends: bool = True) -> tuple[int, dict[str, str], Any]:
        """Status, headers and document of the answer to a body that comes in these pieces."""
        waiting = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
        waiting.append(
            {"type": "http.request", "body": b"", "more_body": False} if ends else {"type": "http.disconnect"}
        )
        sent: list[Any] = []

        async def receive() -> Any:
            return waiting.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        await self.layer(dict(SCOPE), receive, send)
        assert not waiting, "the sender could send all of it"
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers, json.loads(sent[1]["body"])


@pytest.fixture
def server() -> Server:
    return Server()


def test_bodies_that_fit_come_through_whole(server: Server) -> None:
    assert anyio.run(server.put, b"a" * 60, b"b" * 40)[0] == 200
    assert server.bodies == [b"a" * 60 + b"b" * 40]


def test_who_comes_while_the_memory_is_taken_is_told_when_to_come_again(server: Server) -> None:
    answers: list[Any] = []

    async def another() -> None:
        answers.append(await server.put(b"c" * 51))
        answers.append(await server.put(b"d" * 50))

    server.meanwhile.append(another)
    assert anyio.run(server.put, b"a" * 100)[0] == 200
    (refused, headers, problem), (taken, _, _) = answers
    assert (refused, problem["code"], headers["retry-after"]) == (429, "rate_limited", "1")
    assert (problem["value"], problem["threshold"]) == ("151", "150")
    assert taken == 200
    assert server.bodies == [b"a" * 100, b"d" * 50]


@pytest.mark.parametrize("fault", ["too large", "gone", "a bug"])
def test_however_a_request_ends_its_memory_is_free_again(server: Server, fault: str) -> None:
    async def many() -> None:
        for _ in range(5):
            if fault == "too large":
                assert (await server.put(b"a" * 90, b"b" * 11))[0] == 413
            elif fault == "gone":
                await server.put(b"a" * 90, ends=False)
            else:
                server.fails = True
                with pytest.raises(RuntimeError):
                    await server.put(b"a" * 90)
        server.fails = False
        assert (await server.put(b"c" * 100))[0] == 200

    anyio.run(many)
