"""The work of a fetch where a route says whom to ask for what: nobody who failed once is forgotten for it."""

from __future__ import annotations

from collections.abc import Collection
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from protocol.clock import SteadyClock
from protocol.errors import Unreachable
from protocol.shardcast.assembly import Assembly
from protocol.shardcast.line import weights_client
from protocol.shardcast.relays import Relays
from protocol.shardcast.work import Outcome, ShardWork
from tests.unit.protocol.shardcast.relay_world import honestly, published, relay
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
