"""Ways: how to come to a policy version, by how many bytes each takes.

    whole      its full shards, where they are published
    patches    from an earlier version that is here already, patch by patch
    snapshot   from the full shards of an earlier version, and patches from there

In: the version's manifest, those of versions that are here, and somebody to ask for those in between. Each names the
hash of the one before, so whoever trusts the first trusts them all. Out: ways, the cheapest first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from protocol.shardcast.manifest import MAX_CHAIN, Manifest, is_patched

WayKind = Literal["whole", "patches", "snapshot"]
Ask = Callable[[int, str], Manifest | None]
"""The manifest of a version with a hash; None where nobody has it."""


@dataclass(frozen=True)
class Way:
    """`num_bytes` are to be fetched: shards, and patches of the versions in `chain`, whose last one is wanted."""

    kind: WayKind
    num_bytes: int
    base: Manifest | None = None
    """Where the chain begins: a version that is here, or the snapshot; None for `whole`."""
    chain: tuple[Manifest, ...] = ()

    def num_disk_bytes(self, manifest: Manifest) -> int:
        """The most that it takes on disk on the way: a snapshot lies beside what becomes of it."""
        return self.num_bytes if self.kind == "whole" else self.num_bytes + manifest.num_bytes


def ways_to(manifest: Manifest, num_bytes_here: int, held: Collection[int], hold: Ask, ask: Ask) -> list[Way]:
    """All that are worth a thought. `held`: versions that are here; `hold` gives the manifest of one of those.

    `num_bytes_here` of the full shards are here already. Nothing before the oldest version that is here is asked for,
    unless the version can't be had otherwise.
    """
    ways = [Way("whole", manifest.num_bytes - num_bytes_here)] if manifest.is_snapshot else []
    chain: list[Manifest] = []
    num_patch_bytes, current = 0, manifest
    while (patch := current.patch) is not None and len(chain) < MAX_CHAIN:
        chain.insert(0, current)
        num_patch_bytes += patch.num_bytes
        if ways and (
            num_patch_bytes >= min(way.num_bytes for way in ways)
            or patch.base_version < min(held, default=patch.base_version + 1)
        ):
            break
        if (base := hold(patch.base_version, patch.base_manifest_hash)) is not None and _follows(base, current):
            num_bytes = num_patch_bytes + num_rest_bytes(manifest, base)
            ways.append(Way("patches", num_bytes, base, tuple(chain)))
            break
        before = ask(patch.base_version, patch.base_manifest_hash)
        if before is None or not _follows(before, current):
            break
        if before.is_snapshot:
            num_bytes = num_patch_bytes + before.num_bytes + num_rest_bytes(manifest, before)
            ways.append(Way("snapshot", num_bytes, before, tuple(chain)))
        current = before
    return sorted(ways, key=lambda way: way.num_bytes)


def _follows(base: Manifest, manifest: Manifest) -> bool:
    """Whether a manifest can be the one that another names as its base."""
    patch = manifest.patch
    return (
        patch is not None
        and (base.pool_id, base.policy_version) == (manifest.pool_id, patch.base_version)
        and set(patch.files) == {shard.file for shard in base.shards if is_patched(shard)}
    )


def num_rest_bytes(manifest: Manifest, base: Manifest) -> int:
    """Of files that no patch is about, unless the base has them."""
    held = set(base.shards)
    return sum(shard.num_bytes for shard in manifest.shards if not is_patched(shard) and shard not in held)
