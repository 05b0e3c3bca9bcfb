"""Memory of origin, server and relay: so many shards or pieces, whatever a version's size. Files are sparse."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.clock import SteadyClock
from protocol.shardcast.file_server import FileServer
from protocol.shardcast.forwarder import Forwarder
from protocol.shardcast.line import weights_client
from protocol.shardcast.manifest import Manifest
from protocol.shardcast.origin import publish
from protocol.shardcast.transfer import PIECE_BYTES
from protocol.shardcast.work import SHARDS_IN_FLIGHT
from tests.unit.protocol.shardcast.relay_world import release_of
from tests.unit.protocol.shardcast.test_forwarder import Announced, shards_in

SHARD = 1 << 20
NUM_SHARDS = 48
SLACK = 4 << 20
"""Threads, heads, modules that are imported meanwhile."""


@contextmanager
def most_bytes(limit: int) -> Iterator[None]:
    """No more than `limit` is allocated at any time within."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak / 2**20:.1f} MiB of at most {limit / 2**20:.1f}"


def checkpoint(tmp_path: Path, num_bytes: int = NUM_SHARDS * SHARD) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    with (folder / "model.bin").open("wb") as file:
        file.truncate(num_bytes)
    return folder


def published(tmp_path: Path) -> Manifest:
    return publish(checkpoint(tmp_path), tmp_path / "origin", 1, 0, SHARD)


def test_an_origin_holds_a_shard_or_two_of_a_version(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    for _ in range(2):  # the second time it compares what it finds
        with most_bytes(3 * SHARD + SLACK):
            publish(folder, tmp_path / "origin", 1, 0, SHARD)


def test_a_server_holds_nothing_of_what_it_sends(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "versions/0/shards").mkdir(parents=True)
    with (root / "versions/0/shards/0").open("wb") as file:
        file.truncate(NUM_SHARDS * SHARD)
    with (
        FileServer(root, ("127.0.0.1", 0)) as server,
        weights_client() as http,
        most_bytes(SHARD + SLACK),
        http.stream("GET", f"{server.url}/versions/0/shards/0") as answer,
    ):
        assert sum(len(piece) for piece in answer.iter_raw()) == NUM_SHARDS * SHARD


def test_a_relay_holds_a_piece_of_each_shard_that_it_is_sent(tmp_path: Path) -> None:
    announced = Announced()
    manifest = published(tmp_path)
    announced.release = release_of(manifest)
    limit = SHARDS_IN_FLIGHT * PIECE_BYTES + SLACK
    assert limit < manifest.num_bytes / 2
    with FileServer(tmp_path / "origin", ("127.0.0.1", 0)) as server, weights_client() as http:
        pulling = Forwarder(tmp_path / "relay", [server.url], announced, http, 5, SteadyClock())
        with most_bytes(limit):
            pulling.look()
    assert len(shards_in(tmp_path / "relay", 0)) == NUM_SHARDS


def test_more_than_the_limit_is_found_out() -> None:
    with pytest.raises(AssertionError, match="MiB"), most_bytes(SHARD):
        bytearray(2 * SHARD)
