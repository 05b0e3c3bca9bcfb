"""The client: fetches a policy version shard by shard, from whichever server has it, checking each.

In: server URLs and the trainer's `WeightsRelease` (already checked). Out: a folder `DEST/vN`, there
whole or not at all. A corrupt shard costs a shard; after a crash, checked shards aren't fetched again. A folder that
is there already is checked against its manifest first: a disk that lost or changed a bit would have an honest worker
send what no other machine computes, and be slashed for it.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import httpx
from blake3 import blake3

from protocol.canonical import hex0x
from protocol.clock import Clock, SystemClock
from protocol.errors import ShardCorrupt, Unreachable
from protocol.files import sync_folder, write_atomically
from protocol.shardcast.manifest import MAX_MANIFEST_BYTES, Manifest, Shard, read_manifest, version_path
from protocol.wire import WeightsRelease

SHARDS_IN_FLIGHT = 10
ROUNDS = 3
MANIFEST_FILE = ".manifest.json"
"""In a fetched folder: what its files were checked against."""
GRACE_SECONDS = 60.0
LEAST_BYTES_PER_SECOND = 64 << 10
"""A server that is slower than this, after the grace, is as good as silent: the next one is asked."""

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


def version_folder(destination: Path, policy_version: int) -> Path:
    return destination / f"v{policy_version}"


def fetch_version(
    http: httpx.Client,
    urls: Sequence[str],
    release: WeightsRelease,
    destination: Path,
    progress: Progress = lambda done, total: None,
    clock: Clock | None = None,
) -> Path:
    """The folder with all files of the released version, as they were published: each byte is checked.

    Raises Unreachable when no server answers, ShardCorrupt when none has the right bytes.
    """
    folder = version_folder(destination, release.policy_version)
    if is_intact(folder, release.manifest_hash):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    servers = _Servers(http, urls, clock or SystemClock())
    manifest = _fetch_manifest(servers, release)
    parts = destination / f".v{release.policy_version}.parts"
    _fetch_shards(servers, manifest, parts, progress)
    _assemble(manifest, parts, folder)
    return folder


def is_intact(folder: Path, manifest_hash: str) -> bool:
    """Whether a fetched folder still holds exactly the bytes that were promised."""
    try:
        manifest = read_manifest((folder / MANIFEST_FILE).read_bytes(), manifest_hash)
        sizes = {name: (folder / name).stat().st_size for name in manifest.files}
        return sizes == manifest.files and all(_holds(folder, shard) for shard in manifest.shards)
    except (OSError, ShardCorrupt):
        return False


def _holds(folder: Path, shard: Shard) -> bool:
    with (folder / shard.file).open("rb") as file:
        file.seek(shard.offset)
        return _is_intact(file.read(shard.num_bytes), shard)


def _fetch_manifest(servers: _Servers, release: WeightsRelease) -> Manifest:
    path = f"{version_path(release.policy_version)}/manifest.json"
    return servers.ask(path, MAX_MANIFEST_BYTES, lambda data: read_manifest(data, release.manifest_hash))


def _fetch_shards(servers: _Servers, manifest: Manifest, parts: Path, progress: Progress) -> None:
    done = 0

    def fetch(index: int) -> int:
        shard = manifest.shards[index]
        part = parts / str(index)
        if part.exists() and _is_intact(part.read_bytes(), shard):
            return shard.num_bytes
        path = f"{version_path(manifest.policy_version)}/shards/{index}"
        write_atomically(part, servers.ask(path, shard.num_bytes, lambda data: _checked(data, shard)))
        return shard.num_bytes

    with ThreadPoolExecutor(min(SHARDS_IN_FLIGHT, len(manifest.shards))) as pool:
        for num_bytes in pool.map(fetch, range(len(manifest.shards))):
            done += num_bytes
            progress(done, manifest.num_bytes)


def _assemble(manifest: Manifest, parts: Path, folder: Path) -> None:
    """Join checked shards into files, and put the folder in place by rename."""
    staging = folder.with_name(f".{folder.name}.staging")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    for index, shard in enumerate(manifest.shards):
        with (staging / shard.file).open("ab") as file:
            file.write((parts / str(index)).read_bytes())
    for name in manifest.files:
        _sync_file(staging / name)
    write_atomically(staging / MANIFEST_FILE, manifest.to_bytes())
    staging.rename(folder)
    sync_folder(folder.parent)
    shutil.rmtree(parts)


def _sync_file(path: Path) -> None:
    """Without it, a power cut may leave a folder that looks whole with files that aren't."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


class _Servers:
    """The servers that may have a version; none of them is trusted, with bytes or with time."""

    def __init__(self, http: httpx.Client, urls: Sequence[str], clock: Clock) -> None:
        self._http = http
        self._urls = urls
        self._clock = clock

    def ask(self, path: str, limit: int, accept: Callable[[bytes], T]) -> T:
        """What `accept` makes of the first server's bytes that it takes; servers in random order, a few rounds."""
        failures: list[Exception] = []
        for _ in range(ROUNDS):
            for url in random.sample(list(self._urls), len(self._urls)):
                try:
                    return accept(self._get(f"{url.rstrip('/')}/{path}", limit))
                except (httpx.RequestError, httpx.InvalidURL, httpx.HTTPStatusError, ShardCorrupt) as error:
                    failures.append(error)
        if failures and all(isinstance(error, ShardCorrupt) for error in failures):
            raise ShardCorrupt(f"no server has the right bytes of {path}", str(failures[-1]))
        tried = f"tried {', '.join(self._urls) or 'none'}: {failures[-1:]}"
        raise Unreachable(f"no server hands out {path}", tried, "are the relays running?")

    def _get(self, url: str, limit: int) -> bytes:
        """The body at `url`, never more than `limit` bytes of it, nor longer than these may take."""
        deadline = self._clock.now() + GRACE_SECONDS + limit / LEAST_BYTES_PER_SECOND
        with self._http.stream("GET", url, headers={"Accept-Encoding": "identity"}) as answer:
            answer.raise_for_status()
            if answer.headers.get("content-encoding", "identity") != "identity":  # it could unfold without bound
                raise ShardCorrupt("a server sent an encoded body", f"{answer.headers['content-encoding']} from {url}")
            data = bytearray()
            for chunk in answer.iter_bytes():
                data += chunk
                if len(data) > limit:
                    raise ShardCorrupt("a server sent more bytes than were promised", f"over {limit} from {url}")
                if self._clock.now() > deadline:
                    raise httpx.ReadTimeout(f"{len(data)} bytes only, from {url}", request=answer.request)
        return bytes(data)


def _checked(data: bytes, shard: Shard) -> bytes:
    if not _is_intact(data, shard):
        raise ShardCorrupt(f"a shard of {shard.file} doesn't match its hash", f"{len(data)} bytes at {shard.offset}")
    return data


def _is_intact(data: bytes, shard: Shard) -> bool:
    return len(data) == shard.num_bytes and hex0x(blake3(data).digest()) == shard.blake3
