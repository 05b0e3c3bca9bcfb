"""The manifest: which shards make up a policy version, each with its own BLAKE3.

Its `manifest_hash` is in the trainer's signed `WeightsRelease` and on chain, so a client trusts
whatever server hands it the bytes. Source: INTELLECT-2 (arXiv:2505.07291), section 2.2, which hashes
the whole file only.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from protocol.canonical import canonical_hash, canonical_json, hex0x, keccak256
from protocol.errors import ShardCorrupt
from protocol.wire import Hash32, UInt64

MAX_SHARD_BYTES = 1 << 30
MAX_MANIFEST_BYTES = 64 << 20

FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]


class Shard(BaseModel):
    """`num_bytes` of `file` from `offset` on. Example: `Shard(file="model.safetensors", offset=0, …)`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: FileName
    offset: UInt64
    num_bytes: Annotated[int, Field(gt=0, le=MAX_SHARD_BYTES)]
    blake3: Hash32


class Manifest(BaseModel):
    """All shards of a version, files in name order, each file's shards gap-free and in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    pool_id: UInt64
    policy_version: UInt64
    shards: Annotated[tuple[Shard, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _gap_free(self) -> Manifest:
        ends: dict[str, int] = {}
        for shard in self.shards:
            if shard.offset != ends.get(shard.file, 0):
                raise ValueError(f"{shard.file} has a gap or overlap at byte {shard.offset}")
            ends[shard.file] = shard.offset + shard.num_bytes
        if list(ends) != sorted(ends):
            raise ValueError("files aren't in name order")
        return self

    @property
    def files(self) -> dict[str, int]:
        """Size in bytes by file name."""
        sizes: dict[str, int] = {}
        for shard in self.shards:
            sizes[shard.file] = shard.offset + shard.num_bytes
        return sizes

    @property
    def num_bytes(self) -> int:
        return sum(shard.num_bytes for shard in self.shards)

    @cached_property
    def manifest_hash(self) -> str:
        return canonical_hash(self.model_dump(mode="json"))

    def to_bytes(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))


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
