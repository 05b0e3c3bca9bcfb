"""`proofpool shardcast status`: what relays and nodes have, since when; and what an origin's metrics say."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from protocol.api import NodeArrival, VersionSpread
from protocol.clock import SteadyClock
from protocol.documents import shape_of
from protocol.health_server import HealthServer
from protocol.metrics import exposition
from protocol.shardcast import commands
from protocol.shardcast.file_server import FileServer
from protocol.shardcast.holding import HOLDING_FILE, Holding
from protocol.shardcast.line import weights_client
from protocol.shardcast.origin_status import OriginMetrics, health_of
from protocol.shardcast.propagation import Propagation, RelayArrival, propagation, quantiles
from protocol.shardcast.status_command import table
from tests.unit.protocol.shardcast.relay_world import published, relay

LOOPBACK = ("127.0.0.1", 0)
NODES = ["0x" + f"{number:02x}" * 20 for number in range(1, 5)]


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with weights_client(5.0) as client:
        yield client


def spread(policy_version: int = 0, announced_time: int = 1000) -> VersionSpread:
    """Four nodes came 1, 2, 3 and 40 s after the announcement."""
    return VersionSpread(
        policy_version=policy_version,
        manifest_hash="0x" + "11" * 32,
        published_time=announced_time,
        announced_time=announced_time,
        num_nodes=4,
        nodes=tuple(
            NodeArrival(node=node, first_lease_time=announced_time + seconds)
            for node, seconds in zip(NODES, (1, 2, 3, 40), strict=True)
        ),
    )


def holds(root: Path, completed_time: float | None, num_shards: int = 3, version: int = 0) -> Path:
    folder = root / "versions" / str(version)
    folder.mkdir(parents=True)
    Holding(policy_version=version, shards=tuple(range(num_shards)), completed_time=completed_time).write(folder)
    return root


def asked(http: httpx.Client, root: Path) -> RelayArrival:
    with FileServer(root, LOOPBACK) as server:
        found = propagation(http, [server.url], [spread()], SteadyClock())
    return found.versions[0].relays[0]


def test_a_relay_says_since_when_it_has_a_version(tmp_path: Path, http: httpx.Client) -> None:
    whole = asked(http, holds(tmp_path / "whole", 1012.5))
    assert (whole.state, whole.num_shards, whole.seconds) == ("complete", 3, 12.5)
    part = asked(http, holds(tmp_path / "part", None))
    assert (part.state, part.num_shards, part.seconds) == ("partial", 3, None)
    none = asked(http, holds(tmp_path / "other", 1012.5, version=7))
    assert (none.state, none.seconds) == ("missing", None)


def test_an_origin_has_a_version_since_its_manifest_is_there(tmp_path: Path, http: httpx.Client) -> None:
    published(tmp_path)
    os.utime(tmp_path / "origin/versions/0/manifest.json", (1003, 1003))
    found = asked(http, tmp_path / "origin")
    assert (found.state, found.num_shards, found.seconds) == ("complete", None, 3.0)


@pytest.mark.parametrize("said", [b"{", b'{"policy_version": 9, "shards": []}'])
def test_who_says_nonsense_or_nothing_is_silent(tmp_path: Path, http: httpx.Client, said: bytes) -> None:
    root = holds(tmp_path / "mad", None)
    (root / "versions/0" / HOLDING_FILE).write_bytes(said)
    assert asked(http, root).state == "silent"
    found = propagation(http, ["http://127.0.0.1:9"], [spread()], SteadyClock())
    assert found.versions[0].relays[0].state == "silent" and found.versions[0].relay_seconds is None
    (root / "versions/0" / HOLDING_FILE).unlink()
    (root / "versions/0/manifest.json").write_text("{}")
    with relay(root) as undated:  # a server that dates nothing, and knows no HEAD
        found = propagation(http, [undated.url], [spread()], SteadyClock())
    assert found.versions[0].relays[0].state == "silent"


def test_quantiles_are_of_those_that_have_it(tmp_path: Path, http: httpx.Client) -> None:
    roots = [holds(tmp_path / str(number), 1000.0 + number) for number in (2, 4, 30)]
    roots.append(holds(tmp_path / "late", None))
    servers = [FileServer(root, LOOPBACK) for root in roots]
    for server in servers:
        server.__enter__()
    found = propagation(http, [server.url for server in servers], [spread()], SteadyClock())
    for server in servers:
        server.__exit__()
    (version,) = found.versions
    assert version.relay_seconds is not None and version.node_seconds is not None
    assert (version.relay_seconds.p50, version.relay_seconds.p90, version.relay_seconds.last) == (4.0, 30.0, 30.0)
    assert (version.node_seconds.p50, version.node_seconds.p90, version.node_seconds.last) == (2, 40, 40)
    assert shape_of("shardcast status").validate_json(found.model_dump_json()) == found
    said = table(found)
    assert "3 of 4" in said and "partial, 3 shards" in said and "30.0 s after the announcement" in said
    assert quantiles([]) is None and table(Propagation(versions=())) == "no policy version is announced yet"


def test_the_command_asks_the_coordinator_for_versions_and_relays_for_what_they_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Coordinator:
        def __init__(self, url: str) -> None:
            assert url == "http://coordinator"

        def version_spreads(self, limit: int) -> list[VersionSpread]:
            assert limit == 2
            return [spread()]

        def close(self) -> None:
            pass

    monkeypatch.setattr("protocol.client.CoordinatorClient", Coordinator)
    with FileServer(holds(tmp_path / "relay", 1001.0), LOOPBACK) as server:
        words = ["status", "--coordinator", "http://coordinator", "--url", server.url, "--versions", "2", "--json"]
        answer = CliRunner().invoke(commands.app, words)
    found = shape_of("shardcast status").validate_json(answer.stdout)
    assert found.versions[0].relays[0].seconds == 1.0 and found.versions[0].num_nodes == 4


def test_an_origin_tells_what_it_has_and_what_it_sent(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    with FileServer(empty, LOOPBACK) as server:
        said = exposition(OriginMetrics(server, empty)).decode()
    assert "proofpool_origin_versions 0.0" in said and "\nproofpool_origin_policy_version " not in said
    manifest = published(tmp_path, version=3)
    (tmp_path / "origin/versions/4/shards").mkdir(parents=True)
    root = tmp_path / "origin"
    with (
        FileServer(root, LOOPBACK) as server,
        HealthServer("127.0.0.1:0", lambda: health_of(root), OriginMetrics(server, root)) as seen,
    ):
        assert httpx.get(f"{server.url}/versions/3/shards/0").num_bytes_downloaded == manifest.shards[0].num_bytes
        while server.served.num_bytes < manifest.shards[0].num_bytes:
            threading.Event().wait(0.01)
        health = httpx.get(f"http://127.0.0.1:{seen.port}/healthz")
        metrics = httpx.get(f"http://127.0.0.1:{seen.port}/metrics").text
    assert (health.status_code, health.json()["policy_version"]) == (200, 3), "4 has no manifest yet"
    assert "proofpool_origin_versions 1.0" in metrics and "proofpool_origin_policy_version 3.0" in metrics
    assert f"proofpool_origin_bytes_total {float(manifest.shards[0].num_bytes)}" in metrics


@pytest.mark.parametrize("time", ["NaN", "Infinity", "-1", "1e300"])
def test_a_time_that_can_not_be_is_no_answer(tmp_path: Path, http: httpx.Client, time: str) -> None:
    root = holds(tmp_path, 1012.5)
    file = root / "versions/0" / HOLDING_FILE
    file.write_text(file.read_text().replace("1012.5", time))
    found = asked(http, root)
    assert (found.state, found.seconds) == ("silent", None)
    file.write_text(file.read_text().replace(time, "1012.5"))
    assert asked(http, root).state == "complete"
