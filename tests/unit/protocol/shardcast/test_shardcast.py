"""Publishing and fetching a policy version, with servers that lie, fail and come back."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from protocol.canonical import hex0x, keccak256
from protocol.errors import ProofpoolError, ShardCorrupt, Unreachable
from protocol.shardcast.client import fetch
from protocol.shardcast.folder import MANIFEST_FILE
from protocol.shardcast.keeping import keep_newest
from protocol.shardcast.manifest import Manifest, read_manifest
from protocol.shardcast.origin import publish
from protocol.shardcast.transfer import GRACE_SECONDS
from protocol.wire import WeightsRelease

URL = "http://relay"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"{}")
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 10)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "origin"


class StandingClock:
    """Time that only moves when a test moves it, or something waits."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.seconds += seconds
        return stop.is_set()


class Trickle(httpx.SyncByteStream):
    """A body of which a byte comes every so often."""

    def __init__(self, data: bytes, clock: StandingClock) -> None:
        self._data = data
        self._clock = clock

    def __iter__(self) -> Iterator[bytes]:
        for index in range(len(self._data)):
            self._clock.seconds += GRACE_SECONDS / 3
            yield self._data[index : index + 1]


def release_of(manifest: Manifest) -> WeightsRelease:
    return WeightsRelease(
        pool_id=manifest.pool_id, policy_version=manifest.policy_version, manifest_hash=manifest.manifest_hash
    )


def serving(root: Path, spoil: Callable[[str, bytes], bytes] = lambda path, data: data) -> httpx.Client:
    """A server over `root` whose bodies pass through `spoil`."""

    def answer(request: httpx.Request) -> httpx.Response:
        file = root / request.url.path.lstrip("/")
        if not file.is_file():
            return httpx.Response(404)
        return httpx.Response(200, content=spoil(request.url.path, file.read_bytes()))

    return httpx.Client(transport=httpx.MockTransport(answer))


def test_a_fetched_version_has_the_bytes_of_the_checkpoint(checkpoint: Path, root: Path, tmp_path: Path) -> None:
    manifest = publish(checkpoint, root, pool_id=1, policy_version=3, shard_bytes=1000)
    seen: list[tuple[int, int]] = []
    folder = fetch(
        serving(root), [URL], release_of(manifest), tmp_path / "worker", lambda done, total: seen.append((done, total))
    ).folder
    fetched = {f.name: f.read_bytes() for f in folder.iterdir() if f.name != MANIFEST_FILE}
    assert fetched == {f.name: f.read_bytes() for f in checkpoint.iterdir()}
    assert folder.name == "v3"
    assert seen[-1] == (manifest.num_bytes, manifest.num_bytes)


@pytest.mark.parametrize("path_end", ["shards/1", "manifest.json"])
def test_a_changed_byte_is_refused_and_leaves_no_version(
    checkpoint: Path, root: Path, tmp_path: Path, path_end: str
) -> None:
    manifest = publish(checkpoint, root, 1, 0, shard_bytes=1000)

    def flip(path: str, data: bytes) -> bytes:
        return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:] if path.endswith(path_end) else data

    with pytest.raises(ShardCorrupt):
        fetch(serving(root, flip), [URL], release_of(manifest), tmp_path / "worker")
    assert not (tmp_path / "worker" / "v0").exists()


def test_an_endless_body_is_cut_off(checkpoint: Path, root: Path, tmp_path: Path) -> None:
    manifest = publish(checkpoint, root, 1, 0, shard_bytes=1000)
    with pytest.raises(ShardCorrupt):
        fetch(serving(root, lambda path, data: data + data), [URL], release_of(manifest), tmp_path / "worker")


def test_a_lying_server_costs_nothing_while_another_is_honest(checkpoint: Path, root: Path, tmp_path: Path) -> None:
    manifest = publish(checkpoint, root, 1, 0, shard_bytes=100)

    def answer(request: httpx.Request) -> httpx.Response:
        data = (root / request.url.path.lstrip("/")).read_bytes()
        return httpx.Response(200, content=data if request.url.host == "honest" else b"x" * len(data))

    http = httpx.Client(transport=httpx.MockTransport(answer))
    folder = fetch(http, ["http://liar", "http://honest"], release_of(manifest), tmp_path / "worker").folder
    assert (folder / "config.json").read_bytes() == b"{}"


def test_shards_that_were_checked_are_not_fetched_again(checkpoint: Path, root: Path, tmp_path: Path) -> None:
    manifest = publish(checkpoint, root, 1, 0, shard_bytes=1000)
    fetched: list[str] = []

    def fail_at_last(path: str, data: bytes) -> bytes:
        fetched.append(path)
        if path.endswith(f"shards/{len(manifest.shards) - 1}"):
            raise httpx.ConnectError("gone")
        return data

    with pytest.raises(Unreachable):
        fetch(serving(root, fail_at_last), [URL], release_of(manifest), tmp_path / "worker")
    fetched.clear()

    def note(path: str, data: bytes) -> bytes:
        fetched.append(path)
        return data

    fetch(
        serving(root, note),
        [URL],
        release_of(manifest),
        tmp_path / "worker",
    )
    assert [path.rpartition("/")[2] for path in fetched] == ["manifest.json", str(len(manifest.shards) - 1)]


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "remove", "manifest"])
def test_a_folder_that_the_disk_has_damaged_is_fetched_anew(
    checkpoint: Path, root: Path, tmp_path: Path, damage: str
) -> None:
    release = release_of(publish(checkpoint, root, 1, 0, shard_bytes=1000))
    folder = fetch(serving(root), [URL], release, tmp_path / "worker").folder
    assert fetch(serving(tmp_path / "nothing"), [URL], release, tmp_path / "worker").folder == folder
    good = (checkpoint / "model.safetensors").read_bytes()
    file = folder / (MANIFEST_FILE if damage == "manifest" else "model.safetensors")
    if damage == "remove":
        file.unlink()
    else:
        spoilt = {"flip": good[:-1] + b"\0", "cut": good[:-1], "grow": good + b"\0", "manifest": b"{}"}
        file.write_bytes(spoilt[damage])
    assert fetch(serving(root), [URL], release, tmp_path / "worker").folder == folder
    assert (folder / "model.safetensors").read_bytes() == good


def test_a_body_that_unfolds_is_not_unfolded(checkpoint: Path, root: Path, tmp_path: Path) -> None:
    manifest = publish(checkpoint, root, 1, 0, shard_bytes=1000)

    def answer(request: httpx.Request) -> httpx.Response:
        data = gzip.compress((root / request.url.path.lstrip("/")).read_bytes())
        return httpx.Response(200, content=data, headers={"content-encoding": "gzip"})

    with pytest.raises(ShardCorrupt, match="encoded body"):
        http = httpx.Client(transport=httpx.MockTransport(answer))
        fetch(http, [URL], release_of(manifest), tmp_path / "worker")


def test_a_server_that_trickles_is_left(checkpoint: Path, root: Path, tmp_path: Path) -> None:
    """Each byte of the manifest comes in time for the timeout of a read, and the whole never."""
    manifest, clock = publish(checkpoint, root, 1, 0, shard_bytes=1000), StandingClock()

    def answer(request: httpx.Request) -> httpx.Response:
        data = (root / request.url.path.lstrip("/")).read_bytes()
        if request.url.host == "honest" or "/shards/" in request.url.path:
            return httpx.Response(200, content=data)
        return httpx.Response(200, stream=Trickle(data, clock))

    http = httpx.Client(transport=httpx.MockTransport(answer))
    urls = ["http://slow", "http://honest"]
    folder = fetch(http, urls, release_of(manifest), tmp_path / "worker", clock=clock).folder
    assert (folder / "config.json").read_bytes() == b"{}"
    with pytest.raises(Unreachable, match="bytes only"):
        fetch(http, urls[:1], release_of(manifest), tmp_path / "another", clock=clock)


def test_a_server_that_redirects_or_talks_nonsense_is_left(checkpoint: Path, root: Path, tmp_path: Path) -> None:
    manifest = publish(checkpoint, root, 1, 0, shard_bytes=1000)
    http = httpx.Client(transport=httpx.MockTransport(lambda r: httpx.Response(302, headers={"location": str(r.url)})))
    with pytest.raises(Unreachable):
        fetch(http, [URL, "http://[::1"], release_of(manifest), tmp_path / "worker")


def test_no_server_at_all_is_unreachable(checkpoint: Path, root: Path, tmp_path: Path) -> None:
    manifest = publish(checkpoint, root, 1, 0)
    with pytest.raises(Unreachable, match="are the relays running"):
        fetch(serving(root), [], release_of(manifest), tmp_path / "worker")


def test_publishing_again_is_idempotent_but_other_content_is_refused(checkpoint: Path, root: Path) -> None:
    assert publish(checkpoint, root, 1, 0) == publish(checkpoint, root, 1, 0)
    (checkpoint / "config.json").write_bytes(b"[]")
    with pytest.raises(ProofpoolError, match="twice"):
        publish(checkpoint, root, 1, 0)


def test_each_pool_has_an_origin_of_its_own(checkpoint: Path, root: Path) -> None:
    publish(checkpoint, root, 1, 0)
    with pytest.raises(ProofpoolError, match="this origin has another pool's versions") as refused:
        publish(checkpoint, root, 2, 0)
    assert "of pool 1, not 2" in refused.value.why
    assert publish(checkpoint, root / "own", 2, 0).pool_id == 2


def test_old_versions_are_dropped_and_new_ones_kept(checkpoint: Path, root: Path) -> None:
    for version in range(4):
        publish(checkpoint, root, 1, version)
    assert keep_newest(root, 3) == [0]
    assert sorted(path.name for path in (root / "versions").iterdir()) == ["1", "2", "3"]


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden", "x" * 200])
def test_a_manifest_can_not_name_files_outside_its_folder(checkpoint: Path, root: Path, name: str) -> None:
    manifest = publish(checkpoint, root, 1, 0)
    document = manifest.model_dump(mode="json")
    document["shards"][0]["file"] = name
    with pytest.raises(ValueError, match="pattern"):
        Manifest.model_validate(document)


def test_a_manifest_with_a_gap_is_refused(checkpoint: Path, root: Path) -> None:
    document = publish(checkpoint, root, 1, 0, shard_bytes=1000).model_dump(mode="json")
    document["shards"][2]["offset"] += 1
    with pytest.raises(ValueError, match="gap"):
        Manifest.model_validate(document)


def test_a_manifest_is_parsed_only_once_its_hash_fits(checkpoint: Path, root: Path) -> None:
    manifest = publish(checkpoint, root, 1, 0, shard_bytes=1000)
    assert read_manifest(manifest.to_bytes(), manifest.manifest_hash) == manifest
    for data in (b"[" * 100_000, json.dumps(json.loads(manifest.to_bytes()), indent=1).encode()):
        with pytest.raises(ShardCorrupt, match="isn't the promised one"):
            read_manifest(data, manifest.manifest_hash)
    for data in (b"{}", json.dumps(json.loads(manifest.to_bytes()), indent=1).encode()):
        with pytest.raises(ShardCorrupt, match="can't be read|canonical form"):
            read_manifest(data, hex0x(keccak256(data)))
