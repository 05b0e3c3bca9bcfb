"""The weights that a policy version is pinned to: fetched and kept, or found in a folder that was named.

In: what the version's manifest has to hash to, as the chain says; a folder, or servers. Out: a folder with exactly
these bytes. Whoever judges with another model finds forged what is honest, so none is used that wasn't held against
the hash.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from protocol.clock import SteadyClock
from protocol.errors import ProofpoolError, ShardCorrupt, Unreachable, UsageError, VerificationFailed
from protocol.files import cache_folder
from protocol.progress import Steps, Unseen
from protocol.shardcast.client import ask_for_manifest, fetch
from protocol.shardcast.folder import is_intact, version_folder
from protocol.shardcast.line import weights_client
from protocol.shardcast.manifest import Manifest
from protocol.shardcast.origin import manifest_of
from protocol.shardcast.relays import Relays
from protocol.wire import WeightsRelease

NUM_KEPT = 4
"""Policy versions in the cache: what wasn't used for longest goes first."""

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class ModelSource:
    """Where a model is to come from: the folder `model`, or else `urls`, kept in `cache` (None: the user's own).

    `urls` is called where something has to be fetched only.
    """

    model: Path | None
    urls: Callable[[], Sequence[str]]
    cache: Path | None = None

    def folder(self, release: WeightsRelease, progress: Steps | None = None) -> Path:
        """A folder that holds the version. Raises UsageError for another model's, Unreachable where nobody has it."""
        progress = progress or Unseen()
        progress.doing(f"the weights of policy version {release.policy_version}")
        if self.model is not None:
            check_model(self.model, release, self.urls)
            return self.model
        return self._fetched(release, progress)

    def _fetched(self, release: WeightsRelease, progress: Steps) -> Path:
        """From the cache, as far as they are there: what an interrupted run has fetched isn't fetched again."""

        def tell(done: int, total: int) -> None:
            so_far = f"{done // MEBIBYTE} of {total // MEBIBYTE} MiB"
            progress.still(f"the weights of policy version {release.policy_version} ({so_far})")

        cache = self.cache or cache_folder() / "weights"
        place = cache / release.manifest_hash
        folder = version_folder(place, release.policy_version)
        with _one_process(place):
            os.utime(place)
            _discard_oldest(cache)
            if not is_intact(folder, release.manifest_hash):
                try:
                    with weights_client() as http:
                        fetch(http, self.urls(), release, place, tell)
                except (VerificationFailed, Unreachable) as error:
                    raise _unavailable(release, error) from error
        return folder


def check_model(folder: Path, release: WeightsRelease, urls: Callable[[], Sequence[str]] = tuple) -> None:
    """Whether a folder holds what the release promises: as it was fetched, or as it was published. Raises UsageError.

    No verdict is held against another model: it would be blamed for what the auditor got wrong. `urls`: who is asked
    for the manifest where the folder hasn't got it and there is a patch, which can't be made again from the files.
    """
    if not folder.is_dir():
        raise UsageError("there is no such model folder", str(folder), "name a folder in Hugging Face format")
    if is_intact(folder, release.manifest_hash):
        return
    made = manifest_of(folder, release.pool_id, release.policy_version)
    found = "nothing that could be published" if made is None else made.manifest_hash
    if made is not None and found != release.manifest_hash and _is_promised(made, release, urls()):
        return
    if found != release.manifest_hash:
        raise UsageError(
            f"the model folder isn't policy version {release.policy_version}",
            f"{folder} makes manifest {found}, that of the version is {release.manifest_hash}: another model, "
            "or other files beside it",
            "give the version's files and no others, or leave --model out: they are fetched",
        )


def _is_promised(made: Manifest, release: WeightsRelease, urls: Sequence[str]) -> bool:
    """Whether the files are those of the version's manifest; no where nobody has it."""
    version, promised = release.policy_version, release.manifest_hash
    try:
        with weights_client() as http:
            return ask_for_manifest(http, Relays(urls), version, promised, SteadyClock()).shards == made.shards
    except (ShardCorrupt, Unreachable):
        return False


def _unavailable(release: WeightsRelease, error: ProofpoolError) -> Unreachable:
    return Unreachable(
        f"the weights of policy version {release.policy_version} can't be had",
        ": ".join(filter(None, (error.what, error.why))),
        f"old ones aren't served for ever: give --model DIR, a node's or verifier's weights/v{release.policy_version}",
    )


@contextmanager
def _one_process(place: Path) -> Iterator[None]:
    """One fetches, and others wait for what that leaves in the folder."""
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _discard_oldest(cache: Path) -> None:
    versions = [place for place in cache.iterdir() if re.fullmatch(r"0x[0-9a-f]{64}", place.name)]
    for place in sorted(versions, key=lambda place: place.stat().st_mtime)[:-NUM_KEPT]:
        shutil.rmtree(place, ignore_errors=True)
