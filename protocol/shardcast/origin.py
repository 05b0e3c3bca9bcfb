"""The origin: cuts a checkpoint folder into shards and publishes them, data first and manifest last.

In: a folder with the files of a policy version. Out: `ROOT/versions/N/shards/I`, after each of them the signed listing
of those there are (`shards.json`), and in its place at the end `ROOT/versions/N/manifest.json`; all by rename, so no
reader sees half a file, and relays pull while later shards are written. Memory: one shard.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3
from pydantic import ValidationError

from protocol.canonical import hex0x
from protocol.errors import ProofpoolError
from protocol.files import write_atomically
from protocol.shardcast.listing import LISTING_FILE, Listing, Sign
from protocol.shardcast.manifest import Manifest, Shard, read_manifest, version_path

SHARD_BYTES = 64 << 20


def publish(
    checkpoint: Path,
    root: Path,
    pool_id: int,
    policy_version: int,
    shard_bytes: int = SHARD_BYTES,
    sign: Sign | None = None,
) -> Manifest:
    """Publish `checkpoint` as `policy_version`; repeating it with the same content changes nothing.

    `sign` is the trainer's; without it there is no listing, and relays wait for the manifest.
    Raises ProofpoolError if another content is already published under this version.
    """
    folder = root / version_path(policy_version)
    shards: list[Shard] = []
    for shard, data in cut(checkpoint, shard_bytes):
        _place(folder / "shards" / str(len(shards)), data)
        shards.append(shard)
        if sign is not None and not (folder / "manifest.json").exists():
            Listing.by(sign, pool_id, policy_version, dict(enumerate(shards))).write(folder)
    manifest = Manifest(pool_id=pool_id, policy_version=policy_version, shards=tuple(shards))
    _place(folder / "manifest.json", manifest.to_bytes())
    (folder / LISTING_FILE).unlink(missing_ok=True)
    return manifest


def manifest_of(checkpoint: Path, pool_id: int, policy_version: int, shard_bytes: int = SHARD_BYTES) -> Manifest | None:
    """What `publish` would make of a folder; None of one that it couldn't publish."""
    try:
        shards = tuple(shard for shard, _ in cut(checkpoint, shard_bytes))
        return Manifest(pool_id=pool_id, policy_version=policy_version, shards=shards)
    except ValidationError:
        return None


def cut(checkpoint: Path, shard_bytes: int) -> Iterator[tuple[Shard, bytes]]:
    """Shards of all files in `checkpoint` but hidden ones, in name order, with their bytes."""
    for file in sorted(path for path in checkpoint.iterdir() if path.is_file() and not path.name.startswith(".")):
        offset = 0
        with file.open("rb") as stream:
            while data := stream.read(shard_bytes):
                digest = hex0x(blake3(data).digest())
                yield Shard(file=file.name, offset=offset, num_bytes=len(data), blake3=digest), data
                offset += len(data)


def published(root: Path, policy_version: int, manifest_hash: str) -> Manifest:
    """The manifest of a version that this origin has."""
    return read_manifest((root / version_path(policy_version) / "manifest.json").read_bytes(), manifest_hash)


def own_manifest(root: Path, policy_version: int) -> Manifest:
    """The manifest of a version that was published from here. Raises ProofpoolError where it isn't there any more."""
    file = root / version_path(policy_version) / "manifest.json"
    try:
        return Manifest.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        todo = "restore the origin's folder: a version can't be published without those before it"
        raise ProofpoolError(
            f"the origin hasn't got policy version {policy_version}", f"{file}: {error}", todo
        ) from error


def keep_newest(root: Path, num_versions: int) -> list[int]:
    """Drop all but the newest `num_versions`; the dropped ones. The manifest goes first."""
    versions = sorted(int(path.name) for path in (root / "versions").iterdir() if path.name.isdigit())
    dropped = versions[:-num_versions]
    for version in dropped:
        folder = root / version_path(version)
        (folder / "manifest.json").unlink(missing_ok=True)
        shutil.rmtree(folder)
    return dropped


def _place(path: Path, data: bytes) -> None:
    if not path.exists():
        write_atomically(path, data)
    elif path.read_bytes() != data:
        raise ProofpoolError(
            "a policy version can't be published twice with other content", str(path), "publish it under a new version"
        )
