"""The client: fetches a policy version shard by shard, each from whichever relay is likely to be fastest.

In: relay URLs and the trainer's `WeightsRelease` (already checked). Out: a folder `DEST/vN`, there whole or not at
all. No relay is trusted with bytes or with time: each shard is hashed as it comes; a relay that is slow, silent, or
cuts short costs the rest of a shard; one that lies is left, its lie kept. All shards' hashes are in the manifest, whose
own hash is on chain: when the last shard is right, so is the version.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path

import httpx

from protocol.clock import Clock, SteadyClock
from protocol.errors import ShardCorrupt, Unreachable
from protocol.shardcast.assembly import Assembly
from protocol.shardcast.document import PAUSE_SECONDS, ROUNDS, ask_relays, given_up
from protocol.shardcast.folder import is_intact, version_folder
from protocol.shardcast.manifest import MAX_MANIFEST_BYTES, Manifest, read_manifest, version_path
from protocol.shardcast.relays import Lie, Relay, Relays
from protocol.shardcast.transfer import Asked, NotThere, TooSlow, Transfer, receive
from protocol.telemetry import get_logger
from protocol.wire import WeightsRelease

SHARDS_IN_FLIGHT = 10
MOST_REST_SECONDS = 60.0
"""A relay that asks for a longer rest isn't waited for."""
IDLE_SECONDS = 0.05

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


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
        work = _Work(manifest, assembly, http, relays, progress, clock)
        work.patience(wait_seconds, deadline_seconds)
        work.run()
        assembly.finish(manifest)
    return Fetched(folder, manifest, sum(relay.num_bytes for relay in relays.all), tuple(relays.all))


class _Work:
    """What is left of a version, and the threads that fetch it."""

    def __init__(
        self,
        manifest: Manifest,
        assembly: Assembly,
        http: httpx.Client,
        relays: Relays,
        progress: Progress,
        clock: Clock,
    ) -> None:
        self._manifest = manifest
        self._assembly = assembly
        self._http = http
        self._relays = relays
        self._progress = progress
        self._clock = clock
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._fault: Exception | None = None
        here = assembly.found(manifest.shards)
        self._queue = deque(_transfer(manifest, i) for i in range(len(manifest.shards)) if i not in here)
        self._num_left = len(self._queue)
        self._done = sum(manifest.shards[index].num_bytes for index in here)
        self._came = clock.now()
        self.patience(0.0, None)

    def patience(self, wait_seconds: float, deadline_seconds: float | None) -> None:
        self._wait_seconds = wait_seconds
        self._ends = None if deadline_seconds is None else self._clock.now() + deadline_seconds

    def run(self) -> None:
        """All shards. Raises what ended it."""
        self._progress(self._done, self._manifest.num_bytes)
        num_threads = min(SHARDS_IN_FLIGHT, self._num_left)
        if num_threads == 0:
            return
        with ThreadPoolExecutor(num_threads, thread_name_prefix="shards") as pool:
            for future in [pool.submit(copy_context().run, self._fetch_shards) for _ in range(num_threads)]:
                future.result()
        if self._fault is not None:
            raise self._fault

    def _fetch_shards(self) -> None:
        """What one thread does. A fault ends all of them, each after the answer it is reading."""
        try:
            while not self._over.is_set():
                transfer = self._take()
                if transfer is None:
                    self._clock.wait(self._over, IDLE_SECONDS)
                else:
                    self._attempt(transfer)
        except Exception as fault:
            with self._lock:
                self._fault = self._fault or fault
            self._over.set()

    def _take(self) -> Transfer | None:
        """The next one that may be asked for now. Raises Unreachable past the deadline."""
        now = self._clock.now()
        if self._ends is not None and now > self._ends:
            raise Unreachable(
                f"policy version {self._manifest.policy_version} didn't come in time",
                f"{self._done} of {self._manifest.num_bytes} bytes are here",
                "try again: what came is kept",
            )
        with self._lock:
            for _ in range(len(self._queue)):
                transfer = self._queue.popleft()
                if transfer.not_before <= now:
                    return transfer
                self._queue.append(transfer)
        return None

    def _attempt(self, transfer: Transfer) -> None:
        """Ask one relay for what is missing; then the shard is here, or in the queue again."""
        relay = self._relays.draw(transfer.tried, self._clock.now())
        if relay is None:
            self._round_over(transfer)
            return
        started, first = self._clock.now(), transfer.num_done
        try:
            receive(transfer, relay, self._relays, self._http, self._assembly, self._clock)
            self._check(transfer, relay)
        except NotThere as error:
            self._again(transfer, relay, error)
            return
        except Asked as error:
            self._relays.failed(relay, self._clock.now() + min(error.seconds, MOST_REST_SECONDS))
            transfer.was_there = True
            self._again(transfer, relay, error)
            return
        except TooSlow as error:
            get_logger().info("shardcast.slow", url=relay.url, why=str(error))
            self._again(transfer, relay, error)
        except (httpx.HTTPError, httpx.InvalidURL, ShardCorrupt) as error:
            self._relays.failed(relay)
            transfer.was_there = True
            self._again(transfer, relay, error)
            return
        self._relays.succeeded(relay, max(0, transfer.num_done - first), self._clock.now() - started)

    def _check(self, transfer: Transfer, relay: Relay) -> None:
        """A shard of which all bytes came. Raises ShardCorrupt where they are the wrong ones."""
        shard = transfer.shard
        if transfer.found == shard.blake3:
            self._assembly.keep(shard)
            with self._lock:
                self._done += shard.num_bytes
                self._num_left -= 1
                self._came = self._clock.now()
                self._progress(self._done, self._manifest.num_bytes)
                if self._num_left == 0:
                    self._over.set()
            return
        if set(transfer.senders) == {relay.url}:
            self._blame(relay, Lie(relay.url, transfer.path, shard.blake3, transfer.found))
        found = transfer.found
        transfer.is_whole_only = True
        transfer.restart()
        raise ShardCorrupt(f"a shard of {shard.file} doesn't match its hash", f"{found}, not {shard.blake3}")

    def _blame(self, relay: Relay, lie: Lie) -> None:
        self._relays.lied(relay, lie)
        get_logger().warning("shardcast.lie", url=lie.url, path=lie.path, expected=lie.expected, found=lie.found)

    def _again(self, transfer: Transfer, relay: Relay, error: Exception) -> None:
        transfer.failures.append(error)
        transfer.tried.add(relay.url)
        with self._lock:
            self._queue.append(transfer)

    def _round_over(self, transfer: Transfer) -> None:
        """All relays were asked; after a pause they are asked once more, a few times."""
        now = self._clock.now()
        is_waited_for = not transfer.was_there and now < self._came + self._wait_seconds
        if not is_waited_for:
            transfer.num_rounds += 1
        if transfer.num_rounds >= ROUNDS or not self._relays.all:
            raise given_up(transfer.path, self._relays, transfer.failures)
        pause = PAUSE_SECONDS * 2**transfer.num_rounds * random.uniform(0.5, 1.5)
        rested = min(relay.rests_until for relay in self._relays.all)
        transfer.not_before = max(now + pause, rested)
        transfer.tried.clear()
        transfer.was_there = False
        del transfer.failures[:-ROUNDS]
        with self._lock:
            self._queue.append(transfer)


def _transfer(manifest: Manifest, index: int) -> Transfer:
    path = f"{version_path(manifest.policy_version)}/shards/{index}"
    return Transfer(index, manifest.shards[index], path)
