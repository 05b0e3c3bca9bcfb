"""A small document of a relay's: asked of one after the other, until one has what is accepted.

In: relays, a path, and what to make of the bytes. Out: that; the answer is cut off at its limit and by its time.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import httpx

from protocol.canonical import hex0x, keccak256
from protocol.clock import Clock
from protocol.errors import ProofpoolError, ShardCorrupt, Unreachable
from protocol.shardcast.line import LOOK, answer_pieces
from protocol.shardcast.relays import Lie, Relay, Relays
from protocol.shardcast.transfer import GRACE_SECONDS, LEAST_BYTES_PER_SECOND
from protocol.telemetry import get_logger

T = TypeVar("T")

ROUNDS = 3
PAUSE_SECONDS = 0.2
"""After a round, doubled with each, with jitter."""
FIRST_PATIENCE_SECONDS = 1.0
"""A relay that says nothing for so long is left for the next one; four times as long in the next round, and in the last
one as long as its line allows."""
MOST_FAILURES = 100
"""Kept of a wait; the last one is told of."""
PIECE_BYTES = 64 << 10


def ask_relays(
    http: httpx.Client,
    relays: Relays,
    path: str,
    limit: int,
    accept: Callable[[bytes], T],
    clock: Clock,
    promised: str = "",
    wait_seconds: float = 0.0,
    ends: float = math.inf,
) -> T:
    """What `accept` makes of the first relay's bytes that it takes (else it raises ShardCorrupt); a few rounds.

    `wait_seconds`: how long rounds don't count in which relays said no more than that they haven't got it yet.
    `ends`: clock seconds after which nobody is asked or waited for.
    Bytes that aren't what `promised` says are held against who sent them. Raises Unreachable, ShardCorrupt.
    """
    failures: list[Exception] = []
    waits_until, round_ = clock.now() + wait_seconds, 0
    while round_ < ROUNDS and clock.now() <= ends:
        patience = FIRST_PATIENCE_SECONDS * 4**round_ if round_ + 1 < ROUNDS else math.inf
        tried: set[str] = set()
        while clock.now() <= ends and (relay := relays.draw(tried, clock.now())):
            tried.add(relay.url)
            try:
                return _ask(http, relays, relay, path, limit, accept, clock, promised, patience, ends)
            except (httpx.HTTPError, httpx.InvalidURL, ShardCorrupt) as error:
                relays.failed(relay)
                failures.append(error)
        is_waited_for = clock.now() < waits_until and any(_is_not_there(one) for one in failures[-len(tried) :])
        if not is_waited_for:
            round_ += 1
        if round_ < ROUNDS:
            clock.wait(threading.Event(), PAUSE_SECONDS * 2**round_ * random.uniform(0.5, 1.5))
            del failures[:-MOST_FAILURES]
    raise given_up(path, relays, failures)


def _is_not_there(error: Exception) -> bool:
    return isinstance(error, httpx.HTTPStatusError) and error.response.status_code == httpx.codes.NOT_FOUND


def given_up(path: str, relays: Relays, failures: Sequence[Exception]) -> ProofpoolError:
    """What to raise once no relay is left to ask."""
    if failures and all(isinstance(error, ShardCorrupt) for error in failures):
        return ShardCorrupt(f"no server has the right bytes of {path}", str(failures[-1]))
    last = failures[-1] if failures else None
    why = f"tried {', '.join(relay.url for relay in relays.all) or 'none'}{'' if last is None else f': {_told(last)}'}"
    return Unreachable(f"no server hands out {path}", why, _what_to_do(last))


def _told(error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"status {error.response.status_code}, {error.response.reason_phrase or 'without a reason'}"
    return f"{type(error).__name__}: {error}"


def _what_to_do(error: Exception | None) -> str:
    status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
    if status == httpx.codes.UNAUTHORIZED:
        return "ask for a new token (`proofpool shardcast token`), and name its file by PROOFPOOL_SHARDCAST_TOKEN_FILE"
    if status == httpx.codes.NOT_FOUND:
        return "is that version published? relays keep the newest ones only"
    return "are the relays running?"


def _ask(
    http: httpx.Client,
    relays: Relays,
    relay: Relay,
    path: str,
    limit: int,
    accept: Callable[[bytes], T],
    clock: Clock,
    promised: str,
    patience_seconds: float,
    ends: float,
) -> T:
    data = read_document(http, f"{relay.url}/{path}", limit, clock, patience_seconds, ends=ends)
    try:
        return accept(data)
    except ShardCorrupt:
        if promised:
            lie = Lie(relay.url, path, promised, hex0x(keccak256(data)))
            relays.lied(relay, lie)
            get_logger().warning("shardcast.lie", url=lie.url, path=lie.path, expected=lie.expected, found=lie.found)
        raise


def read_document(
    http: httpx.Client,
    url: str,
    limit: int,
    clock: Clock,
    patience_seconds: float = math.inf,
    stop: threading.Event | None = None,
    ends: float = math.inf,
) -> bytes:
    """The body at `url`, never more than `limit` bytes of it, nor longer than these may take, nor so long a silence.

    Once `stop` is set, or the clock is past `ends`, nothing more is waited for.
    Raises httpx.HTTPError, httpx.InvalidURL, ShardCorrupt.
    """
    heard = clock.now()
    deadline = min(ends, heard + GRACE_SECONDS + limit / LEAST_BYTES_PER_SECOND)

    def look() -> None:
        if clock.now() > ends:
            raise httpx.ReadTimeout(f"the time for the whole is over, asking {url}")
        if clock.now() - heard > patience_seconds or (stop is not None and stop.is_set()):
            raise httpx.ReadTimeout(f"nothing for {patience_seconds:.0f} s from {url}")

    headers, looks = {"Accept-Encoding": "identity"}, {LOOK: look}
    with http.stream("GET", url, headers=headers, follow_redirects=False, extensions=looks) as answer:
        answer.raise_for_status()
        if answer.headers.get("content-encoding", "identity") != "identity":  # it could unfold without bound
            raise ShardCorrupt("a server sent an encoded body", f"{answer.headers['content-encoding']} from {url}")
        data = bytearray()
        for piece in answer_pieces(answer, memoryview(bytearray(PIECE_BYTES))):
            data += piece
            heard = clock.now()
            if len(data) > limit:
                raise ShardCorrupt("a server sent more bytes than were promised", f"over {limit} from {url}")
            if heard > deadline:
                raise httpx.ReadTimeout(f"{len(data)} bytes only, from {url}", request=answer.request)
    return bytes(data)
