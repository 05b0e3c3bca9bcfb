"""SHARDCAST's processes killed, spoilt, lied to, out of room: right bytes or a clear error, and always an end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from protocol.shardcast.client import fetch
from protocol.shardcast.file_server import FileServer
from protocol.shardcast.line import weights_client
from tests.integration.shardcast_faults import FAULTS, MODEL, Coordinator, World, publish_to, run_faults, table
from tests.unit.protocol.shardcast.relay_world import release_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SEED, NUM_TRIALS = 8, 24


def test_a_client_has_the_right_bytes_or_a_clear_error_whatever_happens(tmp_path: Path) -> None:
    trials = run_faults(tmp_path, SEED, NUM_TRIALS)
    print("\n" + table(trials))
    assert {trial.kind for trial in trials} == set(FAULTS), "each kind at least once"
    assert [trial for trial in trials if trial.finding] == []


@pytest.fixture
def fetched(tmp_path: Path) -> World:
    """A world without servers, in which a client has just come to its end with version 0."""
    made = World(tmp_path, random.Random(1), Coordinator.__new__(Coordinator), {})
    made.publish()
    publish_to(tmp_path / "checkpoint", tmp_path / "origin", 0)
    with FileServer(tmp_path / "origin", ("127.0.0.1", 0)) as server, weights_client() as http:
        fetch(http, [server.url], release_of(made.manifests[0]), made.out)
    (tmp_path / "client.said").write_text("")
    return made


def test_what_should_never_be_is_found(fetched: World) -> None:
    assert fetched.judge(0, fetched.out) == ("right", "")
    (fetched.folder / "client.said").write_text("error: no server hands out it\n")
    assert fetched.judge(5, fetched.out) == ("error: no server hands out it", "a version beside an error")
    file = fetched.out / "v0" / MODEL
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    assert fetched.judge(0, fetched.out)[1] == "a version that isn't the one that was published"
    file.unlink()
    assert fetched.judge(5, fetched.out)[1] == "a version that isn't the one that was published"
    (fetched.out / "v0").rename(fetched.out / "gone")
    assert fetched.judge(5, fetched.out) == ("error: no server hands out it", "")
    assert fetched.judge(0, fetched.out)[1] == "a success that left nothing"
    (fetched.folder / "client.said").write_text("Traceback (most recent call last)\n")
    assert "no clear error" in fetched.judge(1, fetched.out)[1]
