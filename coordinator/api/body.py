"""How much a request may carry: bodies are read whole, up to a limit, before anything looks at them.

In: an ASGI request. Out: the same request with its body in memory and the body's SHA-256 at hand for the
signature, or a `too_large` problem. What is over the limit is read and thrown away, up to a second limit,
so that the sender gets to see the answer. What all requests together hold in memory has a limit as well: who comes over
it is told when to come again.
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


class Held:
    """Bytes of bodies in memory, over all requests; the server's one thread counts them."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.num_bytes = 0

    def take(self, num_bytes: int) -> bool:
        """Whether there is room for so many more; they count until `release`."""
        if self.num_bytes + num_bytes > self.most_bytes:
            return False
        self.num_bytes += num_bytes
        return True

    def release(self, num_bytes: int) -> None:
        self.num_bytes -= num_bytes


class BodyLimit:
    """Reads bodies of at most `limit(method)` bytes, and at most `most_held_bytes` of all requests together."""

    def __init__(self, app: ASGIApp, limit: Callable[[str], int], most_held_bytes: int) -> None:
        self._app = app
        self._limit = limit
        self._held = Held(most_held_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reading = _Reading(self._limit(scope["method"]), self._held)
        try:
            await self._pass_on(scope, receive, send, reading)
        finally:
            reading.let_go()

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, reading: _Reading) -> None:
        """To the application, with the body; or a refusal."""
        body = await reading.read(receive)
        refusal = reading.refusal
        if refusal is None and scope["method"] != "PUT" and nests_too_deep(body):
            refusal = Rejected(RejectReason.SCHEMA_INVALID, "the body nests deeper", threshold=f"{MAX_NESTING} levels")
        if refusal is not None:
            await answer(problem_of(refusal))(scope, receive, send)
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


class _Reading:
    """One body on its way in. `refusal` says why it isn't kept; it is read to its end all the same."""

    def __init__(self, limit: int, held: Held) -> None:
        self._limit = limit
        self._held = held
        self._chunks: list[bytes] = []
        self._num_held = 0
        self.refusal: Rejected | None = None

    async def read(self, receive: Receive) -> bytes:
        """The whole body; empty where it is refused."""
        num_bytes = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":  # the client is gone: nobody waits for an answer
                break
            chunk: bytes = message.get("body", b"")
            num_bytes += len(chunk)
            self._keep(chunk, num_bytes)
            if not message.get("more_body", False) or num_bytes > DRAIN_BYTES:
                break
        return b"".join(self._chunks)

    def let_go(self) -> None:
        """The bytes aren't in memory any more."""
        self._chunks.clear()
        self._held.release(self._num_held)
        self._num_held = 0

    def _keep(self, chunk: bytes, num_bytes: int) -> None:
        if self.refusal is None and num_bytes > self._limit:
            self.refusal = Rejected(
                RejectReason.TOO_LARGE, "the body is over the limit", threshold=f"{self._limit} bytes"
            )
        elif self.refusal is None and not self._held.take(len(chunk)):
            self.refusal = Rejected(
                RejectReason.RATE_LIMITED,
                "bytes of requests in memory",
                value=str(self._held.num_bytes + len(chunk)),
                threshold=str(self._held.most_bytes),
            )
        if self.refusal is not None:
            self.let_go()
            return
        self._num_held += len(chunk)
        self._chunks.append(chunk)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands the body out once and then waits for the client as before."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
