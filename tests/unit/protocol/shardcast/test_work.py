"""The work of a fetch where a route says whom to ask for what: nobody who failed once is forgotten for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from protocol.clock import SteadyClock
from protocol.errors import Unreachable
from protocol.shardcast.assembly import Assembly
from protocol.shardcast.client import fetch
from protocol.shardcast.line import weights_client
from protocol.shardcast.manifest import Shard
from protocol.shardcast.relays import Relays
from protocol.shardcast.work import Outcome, ShardWork
from tests.unit.protocol.shardcast.relay_world import files_of, honestly, published, relay, release_of, send
from tests.unit.protocol.shardcast.test_client import cuts

DEADLINE_SECONDS = 30.0


class OnlyPeer:
    """One peer has everything, and may be asked as long as it hasn't failed three times."""

    def __init__(self, url: str) -> None:
        self.url, self.num_failures = url, 0

    def take(self, number: int, tried: Collection[str]) -> Collection[str]:
        return () if self.url in tried or self.num_failures >= 3 else (self.url,)

    def end(self, number: int, url: str, outcome: Outcome) -> None:
        self.num_failures += outcome is not Outcome.HERE

    def rivals(self, url: str) -> Collection[str] | None:
        return None


@pytest.mark.parametrize("num_failures", [1, 3])
def test_who_failed_once_is_asked_again_until_the_route_leaves_it(tmp_path: Path, num_failures: int) -> None:
    manifest = published(tmp_path, num_bytes=1000)
    asked: list[str] = []

    def fails(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        asked.append(handler.path)
        (cuts if len(asked) <= num_failures else honestly)(handler, data)

    shards = {1: manifest.shards[1]}
    with (
        relay(tmp_path / "origin", fails) as peer,
        weights_client() as http,
        Assembly(tmp_path / "got" / "v0") as assembly,
    ):
        work = ShardWork(0, shards, assembly, http, Relays([peer.url]), SteadyClock(), OnlyPeer(peer.url))
        if num_failures == 1:
            work.run(deadline_seconds=DEADLINE_SECONDS)
            assert assembly.found(shards) == {1}
        else:
            with pytest.raises(Unreachable, match="in time"):
                work.run(deadline_seconds=1.0)
    assert len(asked) == min(num_failures + 1, 3)


class Stopped(BaseException):
    """What no `except Exception` sees."""


@pytest.mark.parametrize("fault", [Stopped(), OSError("the disk is gone")])
def test_whatever_a_thread_dies_of_ends_the_work(tmp_path: Path, fault: BaseException) -> None:
    manifest = published(tmp_path, num_bytes=5000)

    class Dying(Assembly):
        def keep(self, shard: Shard) -> None:
            raise fault

    with relay(tmp_path / "origin") as one, weights_client() as http, Dying(tmp_path / "got" / "v0") as assembly:
        work = ShardWork(0, dict(enumerate(manifest.shards)), assembly, http, Relays([one.url]), SteadyClock())
        with pytest.raises(type(fault)):
            work.run(deadline_seconds=DEADLINE_SECONDS)


@pytest.mark.parametrize("kind", ["manifest.json", "/shards/1"])
def test_a_deadline_holds_while_an_answer_drips(tmp_path: Path, kind: str) -> None:
    manifest, over = published(tmp_path, num_bytes=1000), threading.Event()

    def drips(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        send(handler, b"", len(data))
        for byte in data:
            handler.wfile.write(bytes([byte]))
            if over.wait(0.02):
                return

    def behave(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        (drips if handler.path.endswith(kind) and not over.is_set() else honestly)(handler, data)

    with relay(tmp_path / "origin", behave, is_for_all=True) as one, weights_client() as http:
        started = time.monotonic()
        try:
            with pytest.raises(Unreachable):
                fetch(http, [one.url], release_of(manifest), tmp_path / "got", deadline_seconds=0.3)
        finally:
            over.set()
        assert time.monotonic() - started < DEADLINE_SECONDS
        fetched = fetch(http, [one.url], release_of(manifest), tmp_path / "got", deadline_seconds=DEADLINE_SECONDS)
    assert files_of(fetched.folder) == files_of(tmp_path / "checkpoint")
