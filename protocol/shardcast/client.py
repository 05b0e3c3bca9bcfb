"""The client: fetches a policy version shard by shard, each from whichever relay is likely to be fastest.

In: relay URLs and the trainer's `WeightsRelease` (already checked). Out: a folder `DEST/vN`, there whole or not at
all. It is made in the way that takes the fewest bytes (`way.py`): of full shards, or of patches to a version that is
in DEST; where one way fails the next is taken. No relay is trusted with bytes or with time: each shard is hashed as it
comes; a relay that is slow, silent, or cuts short costs the rest of a shard; one that lies is left, its lie kept. All
shards' hashes are in the manifest, whose own hash is on chain: when the last shard is right, so is the version.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import httpx

from protocol.clock import Clock, SteadyClock
from protocol.errors import ProofpoolError, ShardCorrupt, Unreachable, VerificationFailed
from protocol.shardcast.assembly import Assembly
from protocol.shardcast.document import ask_relays
from protocol.shardcast.exchange import Exchange, Patience
from protocol.shardcast.folder import (
    held_manifest,
    held_versions,
    is_held,
    is_intact,
    patches_folder,
    patches_of,
    snapshot_folder,
    version_folder,
)
from protocol.shardcast.manifest import (
    MAX_MANIFEST_BYTES,
    Kind,
    Manifest,
    Shard,
    is_patched,
    read_manifest,
    sizes_of,
    version_path,
)
from protocol.shardcast.patch_chain import apply_chain, patch_paths
from protocol.shardcast.relays import Lie, Relay, Relays
from protocol.shardcast.way import Way, WayKind, ways_to
from protocol.shardcast.work import Progress, ShardWork, Sink
from protocol.telemetry import get_logger
from protocol.wire import WeightsRelease

PATCH_WAIT_SECONDS = 10.0
"""The most to wait for a patch that no relay has yet, where there is another way."""


@dataclass(frozen=True)
class Fetched:
    """A version that is here, and what it took."""

    folder: Path
    manifest: Manifest | None
    """None where the folder was here already."""
    num_bytes_fetched: int
    relays: tuple[Relay, ...]
    way: WayKind | Literal["here"] = "here"
    num_bytes_saved: int = 0
    """By which the way taken is shorter than the version's full shards."""
    base_version: int | None = None
    """The version that `patches` build on; None without patches."""
    patches: tuple[Path, ...] = ()
    """Patch files in the order in which they follow each other; they stay as long as the folder (`patches_of`)."""

    seconds: float = 0.0

    @property
    def figures(self) -> dict[str, str | int | float]:
        """What log lines say of it."""
        return {
            "way": self.way,
            "num_bytes": self.num_bytes_fetched,
            "saved_bytes": self.num_bytes_saved,
            "seconds": round(self.seconds, 3),
        }

    @property
    def lies(self) -> list[Lie]:
        return [lie for relay in self.relays for lie in relay.lies]


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
    """The folder with all files of the released version, as they were published: each byte is checked.

    `progress` counts the bytes of the way that is taken.
    `wait_seconds`: how long to wait, without any progress, for what relays haven't got yet: they may be forwarding a
    version while it is written. `deadline_seconds`: for the whole; None leaves it to the least rate of
    each answer.
    Raises Unreachable when no server answers, ShardCorrupt when none has the right bytes, VerificationFailed where the
    trainer's own patch is wrong and nothing else is published, and OSError where the disk is full.
    """
    folder = version_folder(destination, release.policy_version)
    if is_intact(folder, release.manifest_hash):
        return Fetched(folder, None, 0, (), patches=patches_of(destination, release.policy_version))
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    clock = clock or SteadyClock()
    started = clock.now()
    ends = None if deadline_seconds is None else started + deadline_seconds
    return _Errand(http, Relays(urls), release, destination, progress, clock, wait_seconds, ends, started).run()


def ask_for_manifest(
    http: httpx.Client,
    relays: Relays,
    policy_version: int,
    manifest_hash: str,
    clock: Clock,
    wait_seconds: float = 0.0,
    ends: float = math.inf,
) -> Manifest:
    """A manifest, from whichever relay has it. Raises Unreachable, ShardCorrupt."""
    path = f"{version_path(policy_version)}/manifest.json"
    accept = partial(read_manifest, manifest_hash=manifest_hash)
    return ask_relays(http, relays, path, MAX_MANIFEST_BYTES, accept, clock, manifest_hash, wait_seconds, ends)


@dataclass
class _Errand:
    """One call of `fetch`; `ends` in clock seconds."""

    http: httpx.Client
    relays: Relays
    release: WeightsRelease
    destination: Path
    progress: Progress
    clock: Clock
    wait_seconds: float
    ends: float | None
    started: float
    done: int = field(default=0, init=False)
    """Bytes of what is through already, of the way that is taken."""
    total: int = field(default=0, init=False)
    damaged: set[int] = field(default_factory=set, init=False)
    """Versions that are here, and aren't what was fetched."""

    def run(self) -> Fetched:
        """By the cheapest way, or the next one where it comes to nothing."""
        patience = self.wait_seconds if self.ends is None else min(self.wait_seconds, self.ends - self.clock.now())
        manifest = self.ask(self.release.policy_version, self.release.manifest_hash, patience)
        ways, tried = self.ways(manifest), list[Way]()
        failures: list[ProofpoolError | FileNotFoundError] = []
        while ways:
            way = ways.pop(0)
            tried.append(way)
            try:
                self.take(way, manifest, is_last=not ways)
                return self.fetched(way, manifest)
            except (VerificationFailed, Unreachable, FileNotFoundError) as failure:
                if self.ends is not None and self.clock.now() > self.ends:
                    raise
                failures.append(failure)
                if not ways and self.is_damaged(way):
                    ways = [one for one in self.ways(manifest) if one not in tried]
                if ways:
                    get_logger().warning("shardcast.detour", way=way.kind, why=str(failure))
        raise _nowhere(manifest, failures)

    def is_damaged(self, way: Way) -> bool:
        """Whether it has failed for what it builds on here; then no way builds on that any more."""
        if way.kind != "patches" or way.base is None:
            return False
        version = way.base.policy_version
        if is_intact(version_folder(self.destination, version), way.base.manifest_hash):
            return False
        self.damaged.add(version)
        return True

    def ask(self, policy_version: int, manifest_hash: str, wait_seconds: float = 0.0) -> Manifest:
        ends = math.inf if self.ends is None else self.ends
        return ask_for_manifest(self.http, self.relays, policy_version, manifest_hash, self.clock, wait_seconds, ends)

    def ways(self, manifest: Manifest) -> list[Way]:
        def ask(policy_version: int, manifest_hash: str) -> Manifest | None:
            try:
                return self.ask(policy_version, manifest_hash)
            except (Unreachable, ShardCorrupt):
                return None

        with Assembly(version_folder(self.destination, manifest.policy_version)) as assembly:
            num_bytes_here = assembly.num_listed_bytes(manifest)
        held = [version for version in held_versions(self.destination) if version not in self.damaged]
        ways = ways_to(
            manifest,
            num_bytes_here,
            held,
            lambda version, hash_: held_manifest(self.destination, version, hash_) if version in held else None,
            ask,
        )
        free = shutil.disk_usage(self.destination).free
        return sorted(ways, key=lambda way: way.num_disk_bytes(manifest) > free)  # what doesn't fit is the last resort

    def take(self, way: Way, manifest: Manifest, is_last: bool) -> None:
        """Go one way to its end: the version's folder."""
        self.done, self.total = 0, way.num_bytes
        with Assembly(version_folder(self.destination, manifest.policy_version)) as assembly:
            if way.base is None:
                self.total = manifest.num_bytes
                self.work(manifest, dict(enumerate(manifest.shards)), assembly)
            else:
                self.patch(way, way.base, manifest, assembly, self.wait_seconds if is_last else PATCH_WAIT_SECONDS)
            assembly.finish(manifest.files, manifest)

    def patch(self, way: Way, base: Manifest, manifest: Manifest, assembly: Assembly, wait_seconds: float) -> None:
        """Patches, and then what they are about: first what is small, and tells whether the way is open."""
        paths = patch_paths(self.destination, way.chain)
        for path, step in zip(paths, way.chain, strict=True):
            self.fetch_patch(step, path, min(wait_seconds, self.wait_seconds))
        base_folder = self.base_folder(way, base)
        apply_chain(base, base_folder, way.chain, paths, assembly)
        rest = {number: shard for number, shard in manifest.published_shards.items() if not is_patched(shard)}
        assembly.copy(base_folder, rest.values())
        self.work(manifest, rest, assembly)

    def fetch_patch(self, manifest: Manifest, folder: Path, wait_seconds: float) -> None:
        """A version's patch, unless an earlier run has left it here whole."""
        shards = manifest.patch_shards
        if folder.exists() and all(is_held(folder, shard) for shard in shards.values()):
            self.done += sum(shard.num_bytes for shard in shards.values())
            return
        shutil.rmtree(folder, ignore_errors=True)
        with Assembly(folder) as assembly:
            self.work(manifest, shards, assembly, "patch", wait_seconds)
            assembly.finish(sizes_of(shards.values()))

    def base_folder(self, way: Way, base: Manifest) -> Path:
        """Where the version is that patches build on, fetched first if it isn't here."""
        if way.kind == "patches":
            return version_folder(self.destination, base.policy_version)
        folder = version_folder(snapshot_folder(self.destination, self.release.policy_version), base.policy_version)
        if not is_intact(folder, base.manifest_hash):
            shutil.rmtree(folder, ignore_errors=True)
            with Assembly(folder) as snapshot:
                self.work(base, dict(enumerate(base.shards)), snapshot)
                snapshot.finish(base.files, base)
        return folder

    def work(
        self,
        manifest: Manifest,
        shards: dict[int, Shard],
        sink: Sink,
        kind: Kind = "shards",
        wait_seconds: float | None = None,
    ) -> None:
        """Fetch those of a version's shards that aren't here."""
        version, before = manifest.policy_version, self.done
        work = ShardWork(version, shards, sink, self.http, self.relays, self.clock, kind=kind)
        left = None if self.ends is None else max(0.0, self.ends - self.clock.now())
        wait_seconds = self.wait_seconds if wait_seconds is None else wait_seconds
        with ExitStack() as stack:
            if wait_seconds and work.missing:  # relays are asked for what they say they have, and for nothing in vain
                urls, patience = [relay.url for relay in self.relays.all], Patience(upstream=wait_seconds)
                exchange = stack.enter_context(
                    Exchange("", lambda: (), urls, self.relays, self.clock, patience, self.http)
                )
                exchange.follow(version, kind, work.missing)
                work.route = exchange
            work.run(lambda done, total: self.progress(min(before + done, self.total), self.total), wait_seconds, left)
        self.done = before + sum(shard.num_bytes for shard in shards.values())

    def fetched(self, way: Way, manifest: Manifest) -> Fetched:
        """What it took; what other ways have left here is removed."""
        version = manifest.policy_version
        shutil.rmtree(snapshot_folder(self.destination, version), ignore_errors=True)
        if way.base is None:
            shutil.rmtree(patches_folder(self.destination, version), ignore_errors=True)
        self.progress(self.total, self.total)
        return Fetched(
            folder=version_folder(self.destination, version),
            manifest=manifest,
            num_bytes_fetched=sum(relay.num_bytes for relay in self.relays.all),
            relays=tuple(self.relays.all),
            way=way.kind,
            num_bytes_saved=0 if way.base is None else max(0, manifest.num_bytes - way.num_bytes),
            base_version=None if way.base is None else way.base.policy_version,
            seconds=self.clock.now() - self.started,
            patches=() if way.base is None else patches_of(self.destination, version),
        )


def _nowhere(manifest: Manifest, failures: Sequence[Exception]) -> Exception:
    """What to raise where every way has failed: how the last one did, and the others in its reason."""
    if not failures:
        return Unreachable(
            f"policy version {manifest.policy_version} can't be had: it was published as a patch, and its base is gone",
            f"no server has the versions from {manifest.snapshot_version} on that lead to it",
            "are the relays running?",
        )
    last = failures[-1]
    if not isinstance(last, ProofpoolError) or len(failures) == 1:
        return last
    before = "; ".join(str(failure) for failure in failures[:-1])
    return type(last)(last.what, f"{last.why} (before that: {before})", last.todo)
