"""A fetched version on disk: where it lies, and whether it still is what was promised.

In: the folder and the manifest's hash. Out: yes or no, byte by byte: a disk that lost or changed a bit would have an
honest worker send what no other machine computes, and be slashed for it.
"""

from __future__ import annotations

from pathlib import Path

from blake3 import blake3

from protocol.canonical import hex0x
from protocol.errors import ShardCorrupt
from protocol.shardcast.manifest import Shard, read_manifest

MANIFEST_FILE = ".manifest.json"
"""In a fetched folder: what its files were checked against."""
HASH_BYTES = 1 << 20
"""Hashed at a time: memory stays the same whatever a shard's size."""


def version_folder(destination: Path, policy_version: int) -> Path:
    return destination / f"v{policy_version}"


def is_intact(folder: Path, manifest_hash: str) -> bool:
    """Whether a fetched folder still holds exactly the bytes that were promised."""
    try:
        manifest = read_manifest((folder / MANIFEST_FILE).read_bytes(), manifest_hash)
        sizes = {name: (folder / name).stat().st_size for name in manifest.files}
        return sizes == manifest.files and all(holds(folder, shard) for shard in manifest.shards)
    except (OSError, ShardCorrupt):
        return False


def holds(folder: Path, shard: Shard) -> bool:
    """Whether the shard's bytes are in its file in `folder`. Raises OSError where there is no such file."""
    left, hasher = shard.num_bytes, blake3()
    with (folder / shard.file).open("rb", buffering=0) as file:
        file.seek(shard.offset)
        while left and (data := file.read(min(left, HASH_BYTES))):
            hasher.update(data)
            left -= len(data)
    return left == 0 and hex0x(hasher.digest()) == shard.blake3
