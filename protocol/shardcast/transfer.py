"""One shard on its way: which bytes are here, from whom, and what is asked for next.

In: pieces of a relay's answer. Out: the same pieces in their sink, hashed as they come; then whole and right, or a
lie. A transfer that broke off goes on with another relay from the byte where it stopped. Where a hash is wrong and
several relays had a hand in it nobody is blamed: the shard is fetched once more, from one relay alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

import httpx
from blake3 import blake3

from protocol.canonical import hex0x
from protocol.clock import Clock
from protocol.errors import ShardCorrupt
from protocol.shardcast.line import LOOK, answer_pieces
from protocol.shardcast.manifest import Shard
from protocol.shardcast.relays import Relay, Relays

PIECE_BYTES = 1 << 20
"""Received, hashed and written at a time: few enough calls to cost nothing, little enough for a core's cache."""
GRACE_SECONDS = 60.0
LEAST_BYTES_PER_SECOND = 64 << 10
"""A server that is slower than this, after the grace, is as good as silent: the next one is asked."""
LOOK_SECONDS = 2.0
"""A relay's pace is judged after this long."""
SLOWER_TIMES = 4.0
"""A relay that is this many times slower than the best other one is left, if that saves time."""
LEAST_SAVED_SECONDS = 1.0
"""Less isn't worth a connection."""
LAST_LOOK_SECONDS, LAST_SLOWER_TIMES, LAST_SAVED_SECONDS = 1.0, 2.0, 0.3
"""The same once no shard waits any more: threads are idle, and the version is as late as its last shard."""


class PieceSink(Protocol):
    """Where pieces go."""

    def write(self, shard: Shard, at: int, data: memoryview) -> None:
        """Bytes of a shard from its byte `at` on. Raises OSError, on a full disk for instance."""
        ...


class TooSlow(Exception):
    """Another relay brings the rest sooner; what came is kept."""


class NotThere(Exception):
    """The relay hasn't got this shard, or not yet."""


class Asked(Exception):
    """The relay asked to be left alone for `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"asked to wait {seconds:.0f} s")
        self.seconds = seconds


@dataclass
class Transfer:
    """A shard that is being fetched; `num_done` bytes of it are written."""

    shard: Shard
    path: str
    number: int = 0
    among: Collection[str] | None = None
    """URLs that may be asked for it now; None for all."""
    rivals: Collection[str] | None = None
    """URLs that could send the rest of it instead of who does; None for all."""
    num_done: int = 0
    senders: list[str] = field(default_factory=list)
    """URLs that the bytes came from."""
    tried: set[str] = field(default_factory=set)
    """URLs that failed in this round."""
    num_rounds: int = 0
    not_before: float = 0.0
    is_coming: bool = False
    """Some relay of this round answered that it hasn't got it, or not yet."""
    is_whole_only: bool = False
    """Bytes of several relays didn't fit together: no more of that."""
    failures: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._hasher = blake3()

    def restart(self) -> None:
        self.num_done, self._hasher = 0, blake3()
        self.senders.clear()

    def add(self, data: memoryview, sink: PieceSink) -> None:
        if self.num_done + len(data) > self.shard.num_bytes:
            raise ShardCorrupt("a server sent more bytes than were promised", f"over {self.shard.num_bytes}")
        self._hasher.update(data)
        sink.write(self.shard, self.num_done, data)
        self.num_done += len(data)

    @property
    def found(self) -> str:
        """The hash of what has come."""
        return hex0x(self._hasher.digest())


def receive(
    transfer: Transfer,
    relay: Relay,
    relays: Relays,
    http: httpx.Client,
    sink: PieceSink,
    clock: Clock,
    is_last: Callable[[], bool] = lambda: True,
    go_on: Callable[[], None] = lambda: None,
) -> None:
    """Ask `relay` for what is missing of a shard; `is_last`: whether no other shard waits for somebody to fetch it;
    `go_on` raises httpx.ReadTimeout where the answer isn't wanted any more.

    Raises httpx.HTTPError, httpx.InvalidURL, ShardCorrupt, and ours.
    """
    if transfer.is_whole_only:
        transfer.restart()
    if transfer.num_done == transfer.shard.num_bytes:
        return
    first, started = transfer.num_done, clock.now()

    def look() -> None:
        go_on()
        seconds = clock.now() - started
        pace = (transfer.num_done - first) / max(seconds, 1e-6)
        relays.paced(relay, transfer.path, pace, seconds)
        _check_pace(transfer, relay, relays, pace, seconds, is_last)

    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={first}-"} if first else {})
    url, looks = f"{relay.url}/{transfer.path}", {LOOK: look}
    with (
        relays.asked(relay, transfer.path) as answered,
        http.stream("GET", url, headers=headers, follow_redirects=False, extensions=looks) as answer,
    ):
        answered()
        _check_head(answer, transfer)
        transfer.senders.append(relay.url)
        for piece in answer_pieces(answer, memoryview(bytearray(PIECE_BYTES))):
            transfer.add(piece, sink)
            relays.brought(relay, len(piece))
            look()
    if transfer.num_done < transfer.shard.num_bytes:
        raise httpx.ReadError(f"{transfer.num_done} of {transfer.shard.num_bytes} bytes came", request=answer.request)


def _check_head(answer: httpx.Response, transfer: Transfer) -> None:
    if answer.status_code == httpx.codes.NOT_FOUND:
        raise NotThere(str(answer.url))
    if answer.status_code in (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE):
        asked = answer.headers.get("retry-after", "")
        raise Asked(float(asked) if asked.isascii() and asked.isdigit() and len(asked) < 6 else 1.0)
    answer.raise_for_status()
    if answer.headers.get("content-encoding", "identity") != "identity":  # it could unfold without bound
        raise ShardCorrupt("a server sent an encoded body", f"{answer.headers['content-encoding']} from {answer.url}")
    goes_on = answer.status_code == httpx.codes.PARTIAL_CONTENT
    start = f"bytes {transfer.num_done}-"
    if goes_on and not answer.headers.get("content-range", "").startswith(start):
        raise ShardCorrupt("a server sent other bytes than it was asked for", f"not from {start} on: {answer.url}")
    if transfer.num_done and not goes_on:
        transfer.restart()


def _check_pace(
    transfer: Transfer, relay: Relay, relays: Relays, pace: float, seconds: float, is_last: Callable[[], bool]
) -> None:
    """Whether to stay with this relay for what is missing.

    While other shards wait, one connection that is slow takes nothing from them: only a relay is left that is slow on
    all of its connections.
    """
    missing = transfer.shard.num_bytes - transfer.num_done
    if seconds > GRACE_SECONDS + pace * seconds / LEAST_BYTES_PER_SECOND:
        raise httpx.ReadTimeout(f"{pace * seconds:.0f} bytes only in {seconds:.0f} s, from {relay.url}")
    is_end = is_last()
    look, times, least_saved = LOOK_SECONDS, SLOWER_TIMES, LEAST_SAVED_SECONDS
    if is_end:
        look, times, least_saved = LAST_LOOK_SECONDS, LAST_SLOWER_TIMES, LAST_SAVED_SECONDS
    if seconds < look or transfer.is_whole_only or not missing:
        return
    own, other = pace if is_end else relays.pace(relay), relays.best_pace_but(relay, transfer.rivals)
    if own * times < other and missing / max(own, 1.0) - missing / other > least_saved:
        raise TooSlow(f"{own:.0f} bytes a second from {relay.url}, {other:.0f} from another")
