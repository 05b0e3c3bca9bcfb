"""JSON-RPC to a chain's node over HTTP: one call or a batch, with a deadline.

In: a method and its parameters. Out: the `result`, untouched. A connection that breaks is tried again,
which is safe because every method that we send is idempotent (a signed transaction has one hash); a node
that answers with an error raises `NodeRefused` at once. Answers are parsed by the parser of our own messages: Python's
recurses once a bracket, and where a library has raised the interpreter's limit, brackets end the process.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

import httpx
from pydantic_core import from_json

from protocol.clock import Clock, SystemClock
from protocol.errors import ChainError, NodeRefused, UsageError
from protocol.patience import impatient
from protocol.tls import trusted_for
from protocol.unfolding import check_unfolding

NUM_ATTEMPTS = 4
RETRY_SECONDS = 0.25
MAX_ANSWER_BYTES = 256 << 20
"""Of one answer; a page of logs has a few megabytes."""

METHOD_NOT_FOUND = -32601

Call = tuple[str, Sequence[Any]]


class JsonRpc:
    """A node at a URL; may be used by several threads.

    Example: `JsonRpc("http://127.0.0.1:8545").call("eth_chainId")`.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = 20.0,
        clock: Clock | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url
        self._clock = clock or SystemClock()
        self._timeout_seconds = timeout_seconds
        # An encoded body could unfold without bound, and layer by layer.
        headers = {"Accept-Encoding": "identity"}
        verify = trusted_for(url)
        self._http = impatient(
            httpx.Client(timeout=timeout_seconds, transport=transport, headers=headers, verify=verify)
        )
        self._ids = itertools.count(1)
        self._closed = threading.Event()

    def close(self) -> None:
        self._closed.set()
        self._http.close()

    def call(self, method: str, *params: Any) -> Any:
        """The result of one call. Raises NodeRefused, or ChainError where nobody answers."""
        return self._single(method, self._post(self._request(method, params)))

    def call_within(self, seconds: float, method: str, *params: Any) -> Any:
        """As `call`, for a method that answers late on purpose. Raises TimeoutError where it takes longer."""
        try:
            return self._single(method, self._post(self._request(method, params), seconds))
        except ChainError as error:
            if isinstance(error.__cause__, httpx.TimeoutException):
                raise TimeoutError(f"{method} takes longer than {seconds:g} s") from error
            raise

    def batch(self, calls: Sequence[Call]) -> list[Any]:
        """The results in the order of `calls`, from one HTTP request; the first error is raised."""
        if not calls:
            return []
        requests = [self._request(method, params) for method, params in calls]
        answers = self._post(requests)
        if isinstance(answers, dict) and "error" in answers:
            self._result("a batch", answers)
        if not isinstance(answers, list):
            raise ChainError("the node doesn't answer batches", f"{answers!r:.200}", self._hint())
        by_id = {answer.get("id"): answer for answer in answers if _has_id(answer)}
        return [self._result(r["method"], by_id.get(r["id"], {})) for r in requests]

    def _request(self, method: str, params: Sequence[Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": list(params)}

    def _single(self, method: str, answer: Any) -> Any:
        if not isinstance(answer, dict):
            raise ChainError("the node's answer isn't JSON-RPC", f"{method}: {type(answer).__name__}", self._hint())
        return self._result(method, answer)

    def _result(self, method: str, answer: dict[str, Any]) -> Any:
        if isinstance(error := answer.get("error"), dict):
            code = error.get("code")
            code = code if isinstance(code, int) else 0
            raise NodeRefused(method, code, str(error.get("message", "")), error.get("data"))
        if error is not None:
            raise ChainError("the node answers with an error that isn't JSON-RPC", f"{method}: {error!r:.200}")
        if "result" not in answer:
            raise ChainError("the node's answer lacks a result", f"{method}: {answer!r:.200}", self._hint())
        return answer["result"]

    def _post(self, body: Any, timeout_seconds: float | None = None) -> Any:
        """Send, and try again while the connection breaks; a deadline that passes isn't tried again."""
        timeout = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        for attempt in itertools.count(1):
            try:
                return _parsed(self._answer(body, timeout).raise_for_status().content)
            except httpx.TimeoutException as error:
                raise ChainError("the node doesn't answer in time", f"{self.url}: {error}", self._hint()) from error
            except httpx.TransportError as error:
                if attempt == NUM_ATTEMPTS or self._clock.wait(self._closed, RETRY_SECONDS * attempt):
                    raise ChainError("the node can't be reached", f"{self.url}: {error}", self._hint()) from error
            except httpx.HTTPStatusError as error:
                if (refusal := _refusal(error.response)) is not None:
                    return refusal
                status = f"HTTP {error.response.status_code} {error.response.reason_phrase}"
                raise ChainError("the node's answer can't be used", f"{self.url}: {status}", self._hint()) from error
            except (httpx.InvalidURL, UnicodeError) as error:
                raise UsageError("that is no node's URL", f"{self.url!r}: {error}", self._hint()) from error
            except (httpx.DecodingError, ValueError) as error:
                raise ChainError("the node's answer can't be used", f"{self.url}: {error}", self._hint()) from error
        raise AssertionError("unreachable")

    def _answer(self, body: Any, timeout_seconds: float) -> httpx.Response:
        """The whole answer, if it is short enough. Raises ChainError before more is in memory."""
        content = bytearray()
        with self._http.stream("POST", self.url, json=body, timeout=timeout_seconds) as streamed:
            if (encoding := streamed.headers.get("content-encoding", "identity")) != "identity":
                why = f"{self.url}: its body is encoded as {encoding:.40}"
                raise ChainError("the node's answer can't be used", why, self._hint())
            for chunk in streamed.iter_bytes():
                content += chunk
                if len(content) > MAX_ANSWER_BYTES:
                    why = f"{self.url}: more than {MAX_ANSWER_BYTES} bytes"
                    raise ChainError("the node's answer is too long", why, self._hint())
        return httpx.Response(streamed.status_code, content=bytes(content), request=streamed.request)

    def _hint(self) -> str:
        return "check the node's address (`--chain` or `chain_url`), and that the node runs"


def quantity(value: int) -> str:
    """An integer as JSON-RPC writes it."""
    return hex(value)


def block_tag(block: int | str) -> str:
    return block if isinstance(block, str) else quantity(block)


def _has_id(answer: object) -> bool:
    """Whether this part of a batch's answer says what it answers."""
    return isinstance(answer, dict) and isinstance(answer.get("id"), int)


def _parsed(content: bytes) -> Any:
    """Raises ValueError for what is no JSON, or would take too much memory."""
    check_unfolding(content)
    return from_json(content)


def _refusal(response: httpx.Response) -> Any:
    """The JSON-RPC error that some nodes send with an HTTP status of its own; None where there is none."""
    try:
        answer = _parsed(response.content)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and isinstance(answer.get("error"), dict) else None
