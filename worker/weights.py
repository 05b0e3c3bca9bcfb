"""Policy versions on this machine: the newest is followed in the background, between batches it is taken.

    coordinator /v1/pool ─ newest version ─▶ release signed by the trainer? ─▶ hash as on chain? ─▶ SHARDCAST
        ─▶ DATA/weights/vN, there whole or not at all ─▶ newest()

A version that is here already becomes the next one by patches where that is less. `follow` fetches once; `Follower` is
the thread that calls it. Neither the coordinator nor a relay is trusted with weights.
"""

from __future__ import annotations

import contextvars
import shutil
import threading
from pathlib import Path

import httpx

from protocol.clock import Clock
from protocol.errors import ProofpoolError, VerificationFailed
from protocol.shardcast.client import fetch
from protocol.shardcast.folder import (
    held_versions,
    patches_of,
    remove_unfinished,
    remove_version,
    version_folder,
)
from protocol.shardcast.patch_file import read_header
from protocol.telemetry import get_logger
from protocol.weights_parts import WEIGHTS_FILE
from protocol.wire import WeightsRelease
from worker.bounds import Bounds, OutOfRoom
from worker.membership import Membership
from worker.patience import Patience

JOIN_SECONDS = 1.0
WAIT_SECONDS = 20.0
"""Without progress, for shards that relays are only about to have: a version is fetched while it spreads."""
UNBOUNDED = Bounds()


class Weights:
    """Example: `weights.follow()`, then `engine.load(weights.fetch(weights.newest()))`."""

    def __init__(
        self, folder: Path, membership: Membership, http: httpx.Client, num_kept: int, bounds: Bounds = UNBOUNDED
    ) -> None:
        self._folder = folder
        self._bounds = bounds
        self._in_use: int | None = None
        self._num_kept = num_kept
        self._membership = membership
        self._http = http
        self._fetching: dict[int, threading.Lock] = {}
        self._checked: set[int] = set()
        folder.mkdir(parents=True, exist_ok=True)

    def newest(self) -> int | None:
        """The newest version that is here completely; None before the first."""
        return max(self._versions(), default=None)

    def follow(self) -> None:
        """Fetch the pool's newest version if there is one and it isn't here."""
        pool = self._membership.coordinator.pool()
        if pool.policy_version is not None and pool.policy_version not in self._versions():
            self.fetch(pool.policy_version)

    def fetch(self, policy_version: int) -> Path:
        """The folder of a version, fetched if need be.

        Raises Unreachable, Rejected, VerificationFailed, and OutOfRoom where the disk has too little left.

        What an earlier process left is checked once, byte by byte: work on damaged weights would be slashed.
        """
        folder = version_folder(self._folder, policy_version)
        # A lock a version: the loop doesn't wait for a newer one that the follower is fetching.
        with self._fetching.setdefault(policy_version, threading.Lock()):
            if policy_version not in self._checked or not folder.exists():
                if not folder.exists():
                    self._make_room()
                urls = self._membership.coordinator.pool().shardcast_urls
                release = self._release(policy_version)
                fetched = fetch(self._http, urls, release, self._folder, wait_seconds=WAIT_SECONDS)
                self._checked.add(policy_version)
                if fetched.way != "here":
                    get_logger().info("weights.fetched", policy_version=policy_version, **fetched.figures)
        return folder

    def patches(self, held: int, policy_version: int) -> tuple[Path, ...]:
        """The patches that lead from an earlier version to one that is here, in order; none where none do.

        They are those that versions were fetched by. Raises MalformedFile for a damaged one.
        """
        steps: dict[int, tuple[int, Path]] = {}
        for version in range(held + 1, policy_version + 1):
            for path in patches_of(self._folder, version):
                header = read_header(path)
                if path.name == WEIGHTS_FILE and header.base_version < header.policy_version:
                    steps[header.policy_version] = header.base_version, path
        chain, at = list[Path](), policy_version
        while at > held and at in steps:
            at, path = steps[at]
            chain.append(path)
        return tuple(reversed(chain)) if at == held else ()

    def prune(self, in_use: int) -> None:
        """Delete all but the newest versions and the one in use, and what was never fetched to its end before it."""
        self._in_use = in_use
        for policy_version in self._versions()[: -self._num_kept]:
            if policy_version < in_use:
                remove_version(self._folder, policy_version)
            elif policy_version > in_use:  # its patches lead on from the one in use
                shutil.rmtree(version_folder(self._folder, policy_version))
        remove_unfinished(self._folder, before=in_use)

    def _make_room(self) -> None:
        """For another version; where the disk is short, at the cost of those that nothing is done with."""
        try:
            self._bounds.check_disk(self._folder)
        except OutOfRoom:
            for policy_version in self._versions():
                if policy_version not in (self._in_use, self.newest()):
                    remove_version(self._folder, policy_version)
            self._bounds.check_disk(self._folder)

    def _release(self, policy_version: int) -> WeightsRelease:
        """The trainer's release, checked against the chain."""
        membership = self._membership
        signed = membership.coordinator.weights(policy_version).release
        release = signed.check(membership.chain.record().trainer, membership.domain)
        on_chain = membership.chain.version(policy_version).manifest_hash
        promised = (release.pool_id, release.policy_version, release.manifest_hash)
        if promised != (membership.pool_id, policy_version, on_chain):
            raise VerificationFailed(
                f"the release of policy version {policy_version} isn't the one on chain",
                f"manifest {release.manifest_hash} of version {release.policy_version}, on chain {on_chain}",
                "the trainer or the coordinator is at fault: take no leases from this pool",
            )
        return release

    def _versions(self) -> list[int]:
        return held_versions(self._folder)


class Follower:
    """Follows the newest version in a thread of its own until `stop` is set.

    consumes: the pool's newest version    produces: folders    waits for: the coordinator, chain, relays
    A fault that no wait can mend sets `stop` itself, and `join` raises it.
    """

    def __init__(
        self, weights: Weights, clock: Clock, patience: Patience, pause_seconds: float, stop: threading.Event
    ) -> None:
        self._weights = weights
        self._clock = clock
        self._patience = patience
        self._pause_seconds = pause_seconds
        self._stop = stop
        self._fault: BaseException | None = None
        # A daemon: an end doesn't wait for a long download, whose checked shards stay.
        # Log lines of the thread carry the context of the one that makes it.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="weights-follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """After `stop`: wait for the look at hand, but not for a download. Raises what ended the thread early."""
        self._thread.join(JOIN_SECONDS)
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            while not self._clock.wait(self._stop, self._look()):
                pass
        except BaseException as fault:
            self._fault = fault
            self._stop.set()

    def _look(self) -> float:
        """Look once; seconds until the next look."""
        try:
            self._weights.follow()
        except (ProofpoolError, OSError) as error:
            return self._patience.wait_for(error)
        self._patience.rewarded()
        return self._pause_seconds
