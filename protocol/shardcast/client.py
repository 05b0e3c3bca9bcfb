"""The client: fetches a policy version shard by shard, from whichever server has it, checking each.

In: server URLs and the trainer's `WeightsRelease` (already checked). Out: a folder `DEST/vN`, there
whole or not at all. A corrupt shard costs a shard; after a crash, checked shards aren't fetched again.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import httpx
from blake3 import blake3

from protocol.canonical import hex0x
from protocol.errors import ShardCorrupt, Unreachable
from protocol.files import sync_folder, write_atomically
from protocol.shardcast.manifest import MAX_MANIFEST_BYTES, Manifest, Shard, read_manifest, version_path
from protocol.wire import WeightsRelease

SHARDS_IN_FLIGHT = 10
ROUNDS = 3

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
) -> Path:
    """The folder with all files of the released version.

    Raises Unreachable when no server answers, ShardCorrupt when none has the right bytes.
    """
    folder = version_folder(destination, release.policy_version)
    if folder.exists():
        return folder
    manifest = _fetch_manifest(http, urls, release)
    parts = destination / f".v{release.policy_version}.parts"
    _fetch_shards(http, urls, manifest, parts, progress)
    _assemble(manifest, parts, folder)
    return folder


def _fetch_manifest(http: httpx.Client, urls: Sequence[str], release: WeightsRelease) -> Manifest:
    path = f"{version_path(release.policy_version)}/manifest.json"
    return _from_any(http, urls, path, MAX_MANIFEST_BYTES, lambda data: read_manifest(data, release.manifest_hash))


def _fetch_shards(http: httpx.Client, urls: Sequence[str], manifest: Manifest, parts: Path, progress: Progress) -> None:
    done = 0

    def fetch(index: int) -> int:
        shard = manifest.shards[index]
        part = parts / str(index)
        if part.exists() and _is_intact(part.read_bytes(), shard):
            return shard.num_bytes
        path = f"{version_path(manifest.policy_version)}/shards/{index}"
        write_atomically(part, _from_any(http, urls, path, shard.num_bytes, lambda data: _checked(data, shard)))
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
    sync_folder(staging)
    staging.rename(folder)
    sync_folder(folder.parent)
    shutil.rmtree(parts)


def _from_any(http: httpx.Client, urls: Sequence[str], path: str, limit: int, accept: Callable[[bytes], T]) -> T:
    """What `accept` makes of the first server's bytes that it takes; servers in random order, a few rounds."""
    failures: list[Exception] = []
    for _ in range(ROUNDS):
        for url in random.sample(list(urls), len(urls)):
            try:
                return accept(_get(http, f"{url.rstrip('/')}/{path}", limit))
            except (httpx.TransportError, httpx.HTTPStatusError, ShardCorrupt) as error:
                failures.append(error)
    if failures and all(isinstance(error, ShardCorrupt) for error in failures):
        raise ShardCorrupt(f"no server has the right bytes of {path}", str(failures[-1]))
    raise Unreachable(
        f"no server hands out {path}", f"tried {', '.join(urls) or 'none'}: {failures[-1:]}", "are the relays running?"
    )


def _get(http: httpx.Client, url: str, limit: int) -> bytes:
    """The body at `url`, never more than `limit` bytes of it."""
    with http.stream("GET", url, headers={"Accept-Encoding": "identity"}) as answer:
        answer.raise_for_status()
        data = bytearray()
        for chunk in answer.iter_bytes():
            data += chunk
            if len(data) > limit:
                raise ShardCorrupt("a server sent more bytes than were promised", f"over {limit} from {url}")
    return bytes(data)


def _checked(data: bytes, shard: Shard) -> bytes:
    if not _is_intact(data, shard):
        raise ShardCorrupt(f"a shard of {shard.file} doesn't match its hash", f"{len(data)} bytes at {shard.offset}")
    return data


def _is_intact(data: bytes, shard: Shard) -> bool:
    return len(data) == shard.num_bytes and hex0x(blake3(data).digest()) == shard.blake3
