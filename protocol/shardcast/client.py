"""The client: fetches a policy version shard by shard, each from whichever relay is likely to be fastest.

In: relay URLs and the trainer's `WeightsRelease` (already checked). Out: a folder `DEST/vN`, there whole or not at
all. No relay is trusted with bytes or with time: each shard is hashed as it comes; a relay that is slow, silent, or
cuts short costs the rest of a shard; one that lies is left, its lie kept. All shards' hashes are in the manifest, whose
own hash is on chain: when the last shard is right, so is the version.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from protocol.clock import Clock, SteadyClock
from protocol.shardcast.assembly import Assembly
from protocol.shardcast.document import ask_relays
from protocol.shardcast.folder import is_intact, version_folder
from protocol.shardcast.manifest import MAX_MANIFEST_BYTES, Manifest, read_manifest, version_path
from protocol.shardcast.relays import Lie, Relay, Relays
from protocol.shardcast.work import Progress, ShardWork
from protocol.wire import WeightsRelease


@dataclass(frozen=True)
class Fetched:
    """A version that is here, and what it took."""

    folder: Path
    manifest: Manifest | None
    """None where the folder was here already."""
    num_bytes_fetched: int
    relays: tuple[Relay, ...]

    @property
    def lies(self) -> list[Lie]:
        return [lie for relay in self.relays for lie in relay.lies]


def fetch_version(
    http: httpx.Client,
    urls: Sequence[str],
    release: WeightsRelease,
    destination: Path,
    progress: Progress = lambda done, total: None,
    clock: Clock | None = None,
    wait_seconds: float = 0.0,
    deadline_seconds: float | None = None,
) -> Path:
    """The folder with all files of the released version, as they were published: each byte is checked.

    Raises Unreachable when no server answers, ShardCorrupt when none has the right bytes.
    """
    return fetch(http, urls, release, destination, progress, clock, wait_seconds, deadline_seconds).folder


def fetch(
    http: httpx.Client,
    urls: Sequence[str],
    release: WeightsRelease,
    destination: Path,
    progress: Progress = lambda done, total: None,
    clock: Clock | None = None,
    wait_seconds: float = 0.0,
    deadline_seconds: float | None = None,
) -> Fetched:
    """The same, with what it took.

    `wait_seconds`: how long to wait, without any progress, for shards that relays haven't got yet: they may be
    forwarding a version while it is written. `deadline_seconds`: for the whole; None leaves it to the least rate of
    each answer.
    Raises Unreachable, ShardCorrupt, and OSError where the disk is full.
    """
    folder = version_folder(destination, release.policy_version)
    if is_intact(folder, release.manifest_hash):
        return Fetched(folder, None, 0, ())
    shutil.rmtree(folder, ignore_errors=True)
    clock = clock or SteadyClock()
    relays = Relays(urls)
    path = f"{version_path(release.policy_version)}/manifest.json"
    promised = release.manifest_hash
    manifest = ask_relays(
        http, relays, path, MAX_MANIFEST_BYTES, lambda data: read_manifest(data, promised), clock, promised
    )
    with Assembly(folder) as assembly:
        work = ShardWork(release.policy_version, dict(enumerate(manifest.shards)), assembly, http, relays, clock)
        work.run(progress, wait_seconds, deadline_seconds)
        assembly.finish(manifest)
    return Fetched(folder, manifest, sum(relay.num_bytes for relay in relays.all), tuple(relays.all))
