"""The manifest: which shards make up a policy version, each with its own BLAKE3.

Its `manifest_hash` is in the trainer's signed `WeightsRelease` and on chain, so a client trusts
whatever server hands it the bytes. A manifest also lists the shards of the patch from an earlier version and names
that version's manifest, so that one release vouches for a whole chain of patches. `shards` always are those of the full
version: whichever way a client takes, what it has at the end is held against them.
Source: INTELLECT-2 (arXiv:2505.07291), section 2.2, which hashes the whole file only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from protocol.canonical import canonical_hash, canonical_json, hex0x, keccak256
from protocol.errors import ShardCorrupt
from protocol.wire import Hash32, UInt64

MAX_SHARD_BYTES = 1 << 30
MAX_MANIFEST_BYTES = 64 << 20
MAX_CHAIN = 64
"""A version is at most so many patches away from the full shards of an earlier one."""
PATCHED_SUFFIX = ".safetensors"
"""Files that patches are about; all others are small, and are published in full with each version."""

Kind = Literal["shards", "patch"]
"""What shards are of, and the folder of a version where they lie: the version's files, or the patch to it."""
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]


class Shard(BaseModel):
    """`num_bytes` of `file` from `offset` on. Example: `Shard(file="model.safetensors", offset=0, …)`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: FileName
    offset: UInt64
    num_bytes: Annotated[int, Field(gt=0, le=MAX_SHARD_BYTES)]
    blake3: Hash32


class PatchShards(BaseModel):
    """The patch from `base_version`: for each weights file the shards of the patch that makes it, named as the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    base_version: UInt64
    base_manifest_hash: Hash32
    shards: Annotated[tuple[Shard, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _gap_free(self) -> PatchShards:
        check_gap_free(self.shards)
        return self

    @property
    def files(self) -> dict[str, int]:
        """Size in bytes of each patch, by the name of the file that it makes."""
        return sizes_of(self.shards)

    @property
    def num_bytes(self) -> int:
        return sum(shard.num_bytes for shard in self.shards)


class Manifest(BaseModel):
    """All shards of a version, files in name order, each file's shards gap-free and in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    pool_id: UInt64
    policy_version: UInt64
    shards: Annotated[tuple[Shard, ...], Field(min_length=1)]
    patch: PatchShards | None = None
    """None where there is no patch; the field is left out then."""
    snapshot_version: UInt64 | None = None
    """The newest version before this one whose weights are published in full; None, and left out, where this one is."""

    @model_validator(mode="after")
    def _gap_free(self) -> Manifest:
        check_gap_free(self.shards)
        return self

    @model_validator(mode="after")
    def _chained(self) -> Manifest:
        """A patch is of all weights files and no larger than they are; a version in patches only has a snapshot."""
        if self.patch is not None:
            if self.patch.base_version >= self.policy_version:
                raise ValueError(f"the patch builds on version {self.patch.base_version}, which isn't earlier")
            if set(self.patch.files) != {name for name in self.files if name.endswith(PATCHED_SUFFIX)}:
                raise ValueError("the patch isn't of all weights files and of no other")
            if self.patch.num_bytes > self.num_bytes:
                raise ValueError("the patch is larger than the version")
        if self.snapshot_version is not None:
            if self.patch is None or self.snapshot_version > self.patch.base_version:
                raise ValueError(f"no patch leads here from the snapshot, version {self.snapshot_version}")
            if self.policy_version - self.snapshot_version > MAX_CHAIN:
                raise ValueError(f"the snapshot is more than {MAX_CHAIN} versions away")
        return self

    @property
    def files(self) -> dict[str, int]:
        """Size in bytes by file name."""
        return sizes_of(self.shards)

    @property
    def num_bytes(self) -> int:
        return sum(shard.num_bytes for shard in self.shards)

    @property
    def is_snapshot(self) -> bool:
        """Whether all of its shards are published."""
        return self.snapshot_version is None

    @property
    def published_shards(self) -> dict[int, Shard]:
        """Those that lie under `shards/`, by their number: all, or those of files that no patch is about."""
        return {number: shard for number, shard in enumerate(self.shards) if self.is_snapshot or not is_patched(shard)}

    @property
    def patch_shards(self) -> dict[int, Shard]:
        """What lies under `patch/`, by its number."""
        return {} if self.patch is None else dict(enumerate(self.patch.shards))

    @cached_property
    def manifest_hash(self) -> str:
        return canonical_hash(self.document)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Manifest:
        """As pydantic's, but checked, and with a hash of its own. Raises ValidationError."""
        fields = {name: getattr(self, name) for name in Manifest.model_fields}
        return Manifest.model_validate(fields | dict(update or {}))

    def to_bytes(self) -> bytes:
        return canonical_json(self.document)

    @property
    def document(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)


def is_patched(shard: Shard) -> bool:
    """Whether it is of a file that patches are about."""
    return shard.file.endswith(PATCHED_SUFFIX)


def sizes_of(shards: Iterable[Shard]) -> dict[str, int]:
    """Size in bytes by file name, of gap-free shards."""
    return {shard.file: shard.offset + shard.num_bytes for shard in shards}


def check_gap_free(shards: Iterable[Shard]) -> None:
    """Raises ValueError where files aren't in name order, or a file's shards aren't in order and without a gap."""
    ends: dict[str, int] = {}
    for shard in shards:
        if shard.offset != ends.get(shard.file, 0):
            raise ValueError(f"{shard.file} has a gap or overlap at byte {shard.offset}")
        ends[shard.file] = shard.offset + shard.num_bytes
    if list(ends) != sorted(ends):
        raise ValueError("files aren't in name order")


def read_manifest(data: bytes, manifest_hash: str) -> Manifest:
    """The manifest in `data`, if it is the one that `manifest_hash` promises. Raises ShardCorrupt.

    Bytes that nobody promised aren't parsed: the hash is of the canonical JSON, which is what an origin writes.
    """
    found = hex0x(keccak256(data))
    if found != manifest_hash:
        raise ShardCorrupt("a manifest isn't the promised one", f"{found}, not {manifest_hash}")
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        raise ShardCorrupt("a manifest can't be read", str(error.errors()[0]["msg"])) from error
    if manifest.manifest_hash != manifest_hash:
        raise ShardCorrupt("a manifest isn't in its canonical form", manifest_hash)
    return manifest


def version_path(policy_version: int) -> PurePosixPath:
    """Where a version lies under an origin's or relay's root."""
    return PurePosixPath("versions") / str(policy_version)
