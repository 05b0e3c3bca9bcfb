"""The origin: cuts a checkpoint folder into shards and publishes them, data first and manifest last.

In: a folder with the files of a policy version, and the one before it. Out, all by rename, so that no reader sees half
a file:

    ROOT/versions/N/patch/I         shards of the patch from version N-1, where there is one
                    shards/I        shards of the files; of a version in patches only, those of files without patches
                    shards.json     those there are so far, signed: relays pull them while later ones are written
                    manifest.json   at the end, in place of shards.json

Memory: one shard, and a few blocks of a patch.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3
from pydantic import ValidationError

from protocol.canonical import hex0x
from protocol.errors import MalformedFile, ProofpoolError
from protocol.files import write_atomically
from protocol.lock import FolderLock
from protocol.shardcast.folder import MANIFEST_FILE, is_held
from protocol.shardcast.listing import LISTING_FILE, Listing, Sign
from protocol.shardcast.manifest import (
    MAX_CHAIN,
    Manifest,
    PatchShards,
    Shard,
    is_patched,
    read_manifest,
    version_path,
)
from protocol.telemetry import get_logger

SHARD_BYTES = 64 << 20
LOCK_FOLDER = ".publishing"
"""In the root: two who publish at once would put their shards beside each other's manifest."""
SCRATCH_FOLDER = ".patch"
"""In a version's folder, while its patch is made."""


@dataclass(frozen=True)
class Base:
    """The version before: a folder that has its weights files, and its manifest."""

    folder: Path
    manifest: Manifest


def publish(
    checkpoint: Path,
    root: Path,
    pool_id: int,
    policy_version: int,
    shard_bytes: int = SHARD_BYTES,
    sign: Sign | None = None,
    *,
    base: Base | None = None,
    snapshot_every: int = 1,
) -> Manifest:
    """Publish `checkpoint` as `policy_version`; repeating it with the same content changes nothing.

    With a `base` there is a patch from it, and versions that `snapshot_every` doesn't divide are published as that
    patch alone. Where no patch can be made the version is published in full.
    `sign` is the trainer's; without it there is no listing, and relays wait for the manifest.
    Raises ProofpoolError if another content is already published under this version, ConfigError while another process
    publishes into the same folder.
    """
    with FolderLock(root / LOCK_FOLDER, "origin"):
        return _publish(checkpoint, root, pool_id, policy_version, shard_bytes, sign, base, snapshot_every)


def _publish(
    checkpoint: Path,
    root: Path,
    pool_id: int,
    policy_version: int,
    shard_bytes: int,
    sign: Sign | None,
    base: Base | None,
    snapshot_every: int,
) -> Manifest:
    folder = root / version_path(policy_version)
    if _has_manifest(folder):
        return _again(checkpoint, root, pool_id, policy_version, shard_bytes, base)
    _clear(folder)
    patch = None if base is None else _publish_patch(checkpoint, folder, base, policy_version, shard_bytes)
    snapshot_version = None
    if base is not None and patch is not None and policy_version % snapshot_every:
        snapshot_version = _snapshot_version(base.manifest, policy_version)
    shards: list[Shard] = []
    listed: dict[int, Shard] = {}
    for shard, data in cut(checkpoint, shard_bytes):
        if snapshot_version is None or not is_patched(shard):
            listed[len(shards)] = shard
            _place(folder / "shards" / str(len(shards)), data)
            if sign is not None:
                Listing.by(sign, pool_id, policy_version, listed).write(folder)
        shards.append(shard)
    manifest = Manifest(
        pool_id=pool_id,
        policy_version=policy_version,
        shards=tuple(shards),
        patch=patch,
        snapshot_version=snapshot_version,
    )
    _clear_but(folder / "shards", manifest.published_shards)
    _clear_but(folder / "patch", manifest.patch_shards)
    write_atomically(folder / "manifest.json", manifest.to_bytes())
    (folder / LISTING_FILE).unlink(missing_ok=True)
    return manifest


def manifest_of(checkpoint: Path, pool_id: int, policy_version: int, shard_bytes: int = SHARD_BYTES) -> Manifest | None:
    """What `publish` would make of a folder without a base; None of one that it couldn't publish."""
    try:
        shards = tuple(shard for shard, _ in cut(checkpoint, shard_bytes))
        return Manifest(pool_id=pool_id, policy_version=policy_version, shards=shards)
    except ValidationError:
        return None


def published_manifest(checkpoint: Path, pool_id: int, policy_version: int) -> Manifest | None:
    """The manifest that lies in a folder, of the files that are there; else what `publish` makes without a base."""
    made = manifest_of(checkpoint, pool_id, policy_version)
    try:
        kept = Manifest.model_validate_json((checkpoint / MANIFEST_FILE).read_bytes())
    except (OSError, ValidationError):
        return made
    same = made is not None and (kept.pool_id, kept.policy_version, kept.shards) == (
        pool_id,
        policy_version,
        made.shards,
    )
    return kept if same else made


def cut(checkpoint: Path, shard_bytes: int) -> Iterator[tuple[Shard, bytes]]:
    """Shards of all files in `checkpoint` but hidden ones, in name order, with their bytes."""
    return _cut((path for path in checkpoint.iterdir() if path.is_file()), shard_bytes)


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
            f"the origin hasn't got policy version {policy_version}", f"{file}: {str(error).splitlines()[0]}", todo
        ) from error


def _has_manifest(folder: Path) -> bool:
    """Whether the version is out; a manifest that the disk has damaged is made again, like all that it names."""
    file = folder / "manifest.json"
    try:
        Manifest.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return False
    except ValidationError as error:
        get_logger().warning("weights.damaged", file=str(file), why=str(error).splitlines()[0])
        return False
    return True


def _again(
    checkpoint: Path, root: Path, pool_id: int, policy_version: int, shard_bytes: int, base: Base | None
) -> Manifest:
    """A version whose manifest is there: its content has to be the same; what is gone or damaged is put back."""
    manifest, folder = own_manifest(root, policy_version), root / version_path(policy_version)
    listed = manifest.published_shards
    found: list[Shard] = []
    for shard, data in cut(checkpoint, shard_bytes):
        if listed.get(len(found)) == shard:
            _place(folder / "shards" / str(len(found)), data)
        found.append(shard)
    if manifest.pool_id != pool_id:
        raise ProofpoolError(
            "this origin has another pool's versions",
            f"{folder}: of pool {manifest.pool_id}, not {pool_id}",
            "give each pool an origin folder of its own",
        )
    if tuple(found) != manifest.shards:
        raise ProofpoolError(
            "a policy version can't be published twice with other content",
            str(folder),
            "publish it under a new version; where it is a trainer's checkpoint, that is damaged: move its folder away",
        )
    if not all(_is_there(folder / "patch" / str(number), shard) for number, shard in manifest.patch_shards.items()):
        _put_back_patch(checkpoint, folder, manifest, shard_bytes, base)
    (folder / LISTING_FILE).unlink(missing_ok=True)
    return manifest


def _is_there(path: Path, shard: Shard) -> bool:
    return path.exists() and hex0x(blake3(path.read_bytes()).digest()) == shard.blake3


def _put_back_patch(checkpoint: Path, folder: Path, manifest: Manifest, shard_bytes: int, base: Base | None) -> None:
    """Make it from the base again. A version that is there in full can do without; another can't be had at all."""
    get_logger().warning("weights.damaged", file=str(folder / "patch"), why="shards are gone, or not those published")
    made, wanted = None, manifest.patch
    if base is not None and wanted is not None and base.manifest.manifest_hash == wanted.base_manifest_hash:
        made = _publish_patch(checkpoint, folder, base, manifest.policy_version, shard_bytes)
    if made != manifest.patch and not manifest.is_snapshot:
        raise ProofpoolError(
            f"the patch of policy version {manifest.policy_version} is gone from the origin",
            f"{folder / 'patch'}, and the version before isn't there to make it from again",
            "restore the folder from a copy or a relay: this version was published as a patch alone",
        )


def _publish_patch(
    checkpoint: Path, folder: Path, base: Base, policy_version: int, shard_bytes: int
) -> PatchShards | None:
    """The patch's shards in their place; None where there is no patch from this base, or none that is worth it."""
    from protocol.shardcast.patches import diff  # what patches need is loaded for the first of them

    names = _weights_files(checkpoint)
    is_there = names and names == _weights_files(base.folder)
    if not is_there or not all(is_held(base.folder, shard) for shard in base.manifest.shards if is_patched(shard)):
        get_logger().warning("weights.no_patch", policy_version=policy_version, why=f"{base.folder} isn't its base")
        return None
    scratch = folder / SCRATCH_FOLDER
    files, versions = [scratch / name for name in names], (base.manifest.policy_version, policy_version)
    try:
        for file in files:
            pair = base.folder / file.name, checkpoint / file.name
            diff(*pair, file, base_version=versions[0], policy_version=versions[1])
    except MalformedFile as error:
        get_logger().warning("weights.no_patch", policy_version=policy_version, why=str(error))
        return None
    if sum(file.stat().st_size for file in files) >= sum((checkpoint / name).stat().st_size for name in names):
        get_logger().warning("weights.no_patch", policy_version=policy_version, why="it is as large as the weights")
        return None
    shards: list[Shard] = []
    for shard, data in _cut(files, shard_bytes):
        _place(folder / "patch" / str(len(shards)), data)
        shards.append(shard)
    shutil.rmtree(scratch)
    return PatchShards(base_version=versions[0], base_manifest_hash=base.manifest.manifest_hash, shards=tuple(shards))


def _snapshot_version(base: Manifest, policy_version: int) -> int | None:
    """Where the chain that ends with `base` begins; None where the next version would be too far from it."""
    first = base.policy_version if base.snapshot_version is None else base.snapshot_version
    return first if policy_version - first <= MAX_CHAIN else None


def _weights_files(folder: Path) -> Sequence[str]:
    return sorted(path.name for path in folder.glob("*.safetensors") if not path.name.startswith("."))


def _cut(files: Iterable[Path], shard_bytes: int) -> Iterator[tuple[Shard, bytes]]:
    for file in sorted(path for path in files if not path.name.startswith(".")):
        offset = 0
        with file.open("rb") as stream:
            while data := stream.read(shard_bytes):
                digest = hex0x(blake3(data).digest())
                yield Shard(file=file.name, offset=offset, num_bytes=len(data), blake3=digest), data
                offset += len(data)


def _clear(folder: Path) -> None:
    """Remove what a publication that was killed left half written."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / SCRATCH_FOLDER, ignore_errors=True)
    for path in folder.glob("*/.*"):
        path.unlink()


def _clear_but(folder: Path, numbers: Collection[int]) -> None:
    """Remove what an earlier publication left that the manifest doesn't name."""
    for path in folder.glob("*"):
        if int(path.name) not in numbers:
            path.unlink()


def _place(path: Path, data: bytes) -> None:
    """What is there of a publication that was broken off is replaced where it differs: no manifest has named it."""
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)
