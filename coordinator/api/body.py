"""How much a request may carry: bodies are read whole, up to a limit, before anything looks at them.

In: an ASGI request. Out: the same request with its body in memory and the body's SHA-256 at hand for the
signature, or a `too_large` problem. What is over the limit is read and thrown away, up to a second limit,
so that the sender gets to see the answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.api.problems import answer, problem_of
from protocol.canonical import hex0x
from protocol.errors import Rejected
from protocol.reasons import RejectReason

MAX_JSON_BYTES = 1 << 20
DRAIN_BYTES = 64 << 20
MAX_NESTING = 32
"""Deeper than any message. A JSON parser recurses once a level, and a body of brackets would overflow its stack."""
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
BODY = "proofpool.body"
BODY_HASH = "proofpool.body_hash"


class BodyLimit:
    """Reads bodies of at most `limit(method)` bytes."""

    def __init__(self, app: ASGIApp, limit: Callable[[str], int]) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limit(scope["method"])
        body = await _read(receive, limit)
        if body is None:
            too_large = Rejected(RejectReason.TOO_LARGE, "the body is over the limit", threshold=f"{limit} bytes")
            await answer(problem_of(too_large))(scope, receive, send)
            return
        if scope["method"] != "PUT" and nests_too_deep(body):
            nested = Rejected(RejectReason.SCHEMA_INVALID, "the body nests deeper", threshold=f"{MAX_NESTING} levels")
            await answer(problem_of(nested))(scope, receive, send)
            return
        scope[BODY] = body
        scope[BODY_HASH] = hex0x(hashlib.sha256(body).digest())
        await self._app(scope, _replay(body, receive), send)


def nests_too_deep(body: bytes) -> bool:
    """Whether more than `MAX_NESTING` brackets are open at once, those inside strings counted as well.

    >>> nests_too_deep(b"[" * 33), nests_too_deep(b"[]" * 33)
    (True, False)
    """
    depth = 0
    for bracket in body.translate(None, NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_NESTING:
            return True
    return False


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The whole body, or None where it is longer than `limit`."""
    chunks: list[bytes] = []
    num_bytes = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":  # the client is gone: nobody waits for an answer
            return b"".join(chunks)
        chunk: bytes = message.get("body", b"")
        num_bytes += len(chunk)
        if num_bytes <= limit:
            chunks.append(chunk)
        else:
            chunks.clear()
        if not message.get("more_body", False) or num_bytes > DRAIN_BYTES:
            return b"".join(chunks) if num_bytes <= limit else None


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands the body out once and then waits for the client as before."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
