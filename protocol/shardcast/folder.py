"""A fetched version on disk: where it lies, and whether it still is what was promised.

In: the folder and the manifest's hash. Out: yes or no, byte by byte: a disk that lost or changed a bit would have an
honest worker send what no other machine computes, and be slashed for it.

    DEST/vN                    the version's files, and its manifest, hidden
         .vN.patches/K/FILE    the patches that it was made by, each from the version before K; as long as vN is here
         .vN.staging, .vN.base what isn't whole yet; gone on with after a kill
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from blake3 import blake3

from protocol.canonical import hex0x
from protocol.errors import ShardCorrupt
from protocol.shardcast.manifest import Manifest, Shard, read_manifest

MANIFEST_FILE = ".manifest.json"
"""In a fetched folder: what its files were checked against."""
HASH_BYTES = 1 << 20
"""Hashed at a time: memory stays the same whatever a shard's size."""


def version_folder(destination: Path, policy_version: int) -> Path:
    return destination / f"v{policy_version}"


def patches_folder(destination: Path, policy_version: int) -> Path:
    return destination / f".v{policy_version}.patches"


def snapshot_folder(destination: Path, policy_version: int) -> Path:
    """Where an earlier version is fetched to that is needed for this one only."""
    return destination / f".v{policy_version}.base"


def held_versions(destination: Path) -> list[int]:
    """Versions that are here completely, in order."""
    return sorted(int(path.name[1:]) for path in destination.glob("v*") if re.fullmatch(r"v\d+", path.name))


def patches_of(destination: Path, policy_version: int) -> tuple[Path, ...]:
    """The patch files that the version was made by, in the order in which they follow each other; none if in full.

    Each lies in a folder named after the version that it makes, and is named after the weights file.
    """
    folder = patches_folder(destination, policy_version)
    steps = sorted((path for path in folder.glob("*") if path.name.isdigit()), key=lambda path: int(path.name))
    return tuple(file for step in steps for file in sorted(step.iterdir()) if not file.name.startswith("."))


def held_manifest(destination: Path, policy_version: int, manifest_hash: str) -> Manifest | None:
    """The manifest of a version that is here, if it is the promised one; its files aren't looked at."""
    try:
        data = (version_folder(destination, policy_version) / MANIFEST_FILE).read_bytes()
        return read_manifest(data, manifest_hash)
    except (OSError, ShardCorrupt):
        return None


def remove_version(destination: Path, policy_version: int) -> None:
    """A version with all that belongs to it: patches, and what was fetched of it and not finished."""
    shutil.rmtree(version_folder(destination, policy_version), ignore_errors=True)
    for path in destination.glob(f".v{policy_version}.*"):
        shutil.rmtree(path)


def remove_unfinished(destination: Path, before: int) -> None:
    """What was begun of versions before `before` and not finished; patches of those that are here stay."""
    for path in destination.glob(".v*.*"):
        found = re.fullmatch(r"\.v(\d+)\.(.*)", path.name)
        if found is None or int(found[1]) >= before:
            continue
        if found[2] != "patches" or not version_folder(destination, int(found[1])).exists():
            shutil.rmtree(path)


def is_intact(folder: Path, manifest_hash: str) -> bool:
    """Whether a fetched folder still holds exactly the bytes that were promised."""
    try:
        manifest = read_manifest((folder / MANIFEST_FILE).read_bytes(), manifest_hash)
        sizes = {name: (folder / name).stat().st_size for name in manifest.files}
        return sizes == manifest.files and all(holds(folder, shard) for shard in manifest.shards)
    except (OSError, ShardCorrupt):
        return False


def is_held(folder: Path, shard: Shard) -> bool:
    """The same where there may be no such file."""
    return (folder / shard.file).is_file() and holds(folder, shard)


def holds(folder: Path, shard: Shard) -> bool:
    """Whether the shard's bytes are in its file in `folder`. Raises OSError where there is no such file."""
    left, hasher = shard.num_bytes, blake3()
    with (folder / shard.file).open("rb", buffering=0) as file:
        file.seek(shard.offset)
        while left and (data := file.read(min(left, HASH_BYTES))):
            hasher.update(data)
            left -= len(data)
    return left == 0 and hex0x(hasher.digest()) == shard.blake3
