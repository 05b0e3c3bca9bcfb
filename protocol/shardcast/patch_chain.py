"""A chain of patches: fetched, applied in order, and what comes of it held against the version's manifest.

In: a folder with an earlier version's files, and the manifests of the versions from there on. Out: the weights files
in an `Assembly`'s folder, each shard of them checked. Not even the trainer's own patch is believed: what it makes has
the manifest's hashes, or isn't used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from protocol.errors import ShardCorrupt, VerificationFailed
from protocol.shardcast.assembly import Assembly
from protocol.shardcast.folder import holds, patches_folder
from protocol.shardcast.manifest import Manifest, Shard, is_patched
from protocol.shardcast.work import ShardWork, Sink

StartWork = Callable[[Manifest, dict[int, Shard], Sink, str], ShardWork]


def patch_paths(destination: Path, chain: Sequence[Manifest]) -> list[Path]:
    """The folder for each patch of a chain."""
    folder = patches_folder(destination, chain[-1].policy_version)
    return [folder / str(manifest.policy_version) for manifest in chain]


def apply_chain(
    base: Manifest, folder: Path, chain: Sequence[Manifest], patches: Sequence[Path], assembly: Assembly
) -> None:
    """Make the wanted version's weights files of those in `folder`; `patches` are folders as `patch_paths` has them.

    Raises VerificationFailed, MalformedFile or ShardCorrupt where they don't become what the manifest promises,
    OSError on a full disk.
    """
    from protocol.shardcast.patches import apply_patches  # what patches need is loaded for the first of them

    wanted = chain[-1]
    for name in {shard.file for shard in wanted.shards if is_patched(shard)}:
        most = max(manifest.files[name] for manifest in (base, *chain))
        apply_patches(
            folder / name, [patch / name for patch in patches], assembly.staging / name, check=False, max_bytes=most
        )
    for shard in wanted.shards:
        if not is_patched(shard):
            continue
        if not holds(assembly.staging, shard):
            raise _not_as_promised(base, folder, wanted, shard)
        assembly.keep(shard)


def _not_as_promised(base: Manifest, folder: Path, wanted: Manifest, shard: Shard) -> ShardCorrupt | VerificationFailed:
    """Whose fault it is: this disk's, or the trainer's."""
    if not all(holds(folder, one) for one in base.shards if is_patched(one)):
        return ShardCorrupt(
            f"the files of policy version {base.policy_version} are damaged", f"{folder} isn't what was fetched"
        )
    return VerificationFailed(
        f"the patches from policy version {base.policy_version} don't make version {wanted.policy_version}",
        f"{shard.file} from byte {shard.offset} on isn't {shard.blake3}",
        "the trainer has published a wrong patch: only full shards bring this version",
    )
