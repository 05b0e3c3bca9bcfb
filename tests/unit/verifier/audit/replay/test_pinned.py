"""Weights that are a version's: fetched once, or in a folder that was named; another model isn't used."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from protocol.errors import CoordinatorUnreachable, Unreachable, UsageError
from protocol.shardcast.origin import Base, publish
from protocol.wire import WeightsRelease
from tests.unit.protocol.shardcast.chain_world import run_of
from tests.unit.protocol.shardcast.relay_world import release_of
from verifier.audit.replay.pinned import NUM_KEPT, ModelSource, check_model

ORIGIN = "http://origin.test"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"{}")
    (folder / "model.safetensors").write_bytes(bytes(range(256)))
    return folder


@pytest.fixture
def release(checkpoint: Path, tmp_path: Path) -> WeightsRelease:
    manifest = publish(checkpoint, tmp_path / "origin", 1, 3)
    return WeightsRelease(pool_id=1, policy_version=3, manifest_hash=manifest.manifest_hash)


@pytest.fixture(autouse=True)
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server at any URL is this one."""

    def answer(request: httpx.Request) -> httpx.Response:
        file = tmp_path / "origin" / request.url.path.lstrip("/")
        return httpx.Response(200, content=file.read_bytes()) if file.is_file() else httpx.Response(404)

    client, transport = httpx.Client, httpx.MockTransport(answer)
    monkeypatch.setattr("verifier.audit.replay.pinned.weights_client", lambda: client(transport=transport))


class Servers:
    """Whoever is asked where servers are, and how often that was."""

    num_asked = 0

    def __call__(self) -> tuple[str, ...]:
        self.num_asked += 1
        return (ORIGIN,)


def test_weights_are_fetched_once(release: WeightsRelease, checkpoint: Path, tmp_path: Path) -> None:
    servers = Servers()
    source = ModelSource(None, servers, tmp_path / "cache")
    folder = source.folder(release)
    assert (folder / "model.safetensors").read_bytes() == (checkpoint / "model.safetensors").read_bytes()
    assert source.folder(release) == folder and servers.num_asked == 1
    (folder / "config.json").write_bytes(b"[]")
    assert source.folder(release) == folder and servers.num_asked == 2, "damage is mended"
    check_model(folder, release)


def test_what_nobody_serves_is_a_network_error_that_says_what_to_do(release: WeightsRelease, tmp_path: Path) -> None:
    def silent() -> tuple[str, ...]:
        raise CoordinatorUnreachable("the coordinator doesn't answer", "GET /v1/pool")

    shutil.rmtree(tmp_path / "origin" / "versions")
    for servers in (Servers(), silent, lambda: ()):
        with pytest.raises(Unreachable, match="version 3 can't be had") as raised:
            ModelSource(None, servers, tmp_path / "cache").folder(release)
        assert raised.value.exit_code == 5 and "--model DIR" in raised.value.todo


def test_servers_with_other_bytes_are_as_good_as_silent(release: WeightsRelease, tmp_path: Path) -> None:
    (tmp_path / "origin" / "versions" / "3" / "shards" / "0").write_bytes(b"[]")
    with pytest.raises(Unreachable, match="can't be had"):
        ModelSource(None, Servers(), tmp_path / "cache").folder(release)


def test_the_cache_keeps_what_was_used_last(release: WeightsRelease, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for age in range(NUM_KEPT):
        place = cache / f"0x{age:064x}"
        place.mkdir(parents=True)
        os.utime(place, (1000 - age, 1000 - age))
    (cache / "mine").mkdir()
    ModelSource(None, Servers(), cache).folder(release)
    oldest = f"0x{NUM_KEPT - 1:064x}"
    assert {place.name for place in cache.iterdir()} == {
        *(f"0x{age:064x}" for age in range(NUM_KEPT) if f"0x{age:064x}" != oldest),
        release.manifest_hash,
        "mine",
    }


def test_of_two_that_want_the_same_one_fetches_and_the_other_waits(release: WeightsRelease, tmp_path: Path) -> None:
    servers = Servers()
    source = ModelSource(None, servers, tmp_path / "cache")
    with ThreadPoolExecutor(4) as pool:
        folders = {done.result() for done in [pool.submit(source.folder, release) for _ in range(4)]}
    assert len(folders) == 1 and servers.num_asked == 1


def test_a_folder_that_was_named_is_the_version_and_nobody_is_asked(
    release: WeightsRelease, checkpoint: Path, tmp_path: Path
) -> None:
    servers = Servers()
    assert ModelSource(checkpoint, servers).folder(release) == checkpoint
    (checkpoint / ".gitattributes").write_bytes(b"what a download leaves")
    assert ModelSource(checkpoint, servers).folder(release) == checkpoint
    assert servers.num_asked == 0


def test_a_bare_folder_of_a_version_with_a_patch_is_held_against_the_manifest_that_servers_have(
    tmp_path: Path,
) -> None:
    run, servers = run_of(tmp_path, 2), Servers()
    release = release_of(run.manifests[1])
    published = publish(run.checkpoint(1), tmp_path / "plain", 1, 1)
    assert published.manifest_hash != release.manifest_hash, "a patch is in the hash"
    shutil.rmtree(tmp_path / "origin")
    base = Base(run.checkpoint(0), publish(run.checkpoint(0), tmp_path / "origin", 1, 0))
    release = release_of(publish(run.checkpoint(1), tmp_path / "origin", 1, 1, base=base))
    check_model(run.checkpoint(1), release, servers)
    assert servers.num_asked == 1
    with pytest.raises(UsageError, match="isn't policy version 1"):
        check_model(run.checkpoint(0), release, servers)
    with pytest.raises(UsageError, match="isn't policy version 1"):
        check_model(run.checkpoint(1), release)


def test_another_model_is_named_as_such(release: WeightsRelease, checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "model.safetensors").write_bytes(bytes(256))
    with pytest.raises(UsageError, match="isn't policy version 3") as raised:
        check_model(checkpoint, release)
    assert release.manifest_hash in raised.value.why and "another model" in raised.value.why
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="isn't policy version 3"):
        check_model(tmp_path / "empty", release)
    with pytest.raises(UsageError, match="no such model folder"):
        check_model(tmp_path / "nowhere", release)


def test_a_folder_with_another_file_in_it_says_so(release: WeightsRelease, checkpoint: Path) -> None:
    (checkpoint / "README.md").write_bytes(b"# hello")
    with pytest.raises(UsageError, match="isn't policy version 3") as raised:
        check_model(checkpoint, release)
    assert "other files beside it" in raised.value.why
