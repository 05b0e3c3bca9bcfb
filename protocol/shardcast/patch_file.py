"""The patch file: a header, the layout of the file that it makes, blocks in order, and a hash over all of it.

In: parts one after the other, or a file of anybody's. Out: the file; or its parts, each no longer than it may be, which
is checked before memory is taken. Format: docs/protocol.md, Patches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import zstandard
from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.canonical import canonical_json
from protocol.errors import MalformedFile
from protocol.shardcast.patch_blocks import max_block_bytes
from protocol.shardcast.patch_layout import MAX_LAYOUT_BYTES, Layout, Span
from protocol.wire import Hash32, UInt64

MAGIC = b"PPPATCH1"
LENGTH = struct.Struct("<I")
BLOCK_BYTES = 4 << 20
MAX_BLOCK_BYTES = 16 << 20
MAX_HEADER_BYTES = 16 << 20
HASH_BYTES = 32
READ_BYTES = 1 << 20


class PatchHeader(BaseModel):
    """What a patch is about. `base_hash` and `result_hash` are the BLAKE3 of whole safetensors files."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    base_version: UInt64
    policy_version: UInt64
    base_hash: Hash32
    result_hash: Hash32
    result_bytes: UInt64
    block_bytes: Annotated[int, Field(ge=8, le=MAX_BLOCK_BYTES, multiple_of=8)] = BLOCK_BYTES
    whole: tuple[str, ...] = ()
    """Names of tensors that don't build on the base's, sorted."""


class PatchWriter:
    """Writes a patch, front to back: layout first, then `add` for each span, then `finish` with the header.

    Hashes in the header may be known only when all files are read, so its place is kept free until then.
    """

    def __init__(self, file: BinaryIO, header: PatchHeader, layout: Layout) -> None:
        self._file = file
        self._file.write(MAGIC)
        self.add(_header_text(header))
        self.add(zstandard.ZstdCompressor(level=9).compress(layout.text))

    def add(self, part: bytes) -> None:
        self._file.write(LENGTH.pack(len(part)))
        self._file.write(part)

    def finish(self, header: PatchHeader) -> int:
        """Put in the header, which has the same length with its right hashes; how large the file is."""
        self._file.seek(len(MAGIC) + LENGTH.size)
        self._file.write(_header_text(header))
        self._file.seek(0)
        hasher = blake3()
        while piece := self._file.read(READ_BYTES):
            hasher.update(piece)
        self._file.write(hasher.digest())
        return self._file.tell()


def _header_text(header: PatchHeader) -> bytes:
    return canonical_json(header.model_dump(mode="json"))


class PatchReader:
    """A patch, front to back. Example: `with PatchReader.open(path) as patch: print(patch.header.base_version)`.

    `blocks` gives one block's bytes for each of `spans`, and checks at the end that the file is as it was written.
    Everything raises MalformedFile where bytes make no sense.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hasher = blake3()
        if self._read(len(MAGIC)) != MAGIC:
            raise _malformed("it doesn't begin as one")
        try:
            self.header = PatchHeader.model_validate_json(self._part(MAX_HEADER_BYTES))
        except ValidationError as error:
            raise _malformed(f"its header: {error.errors()[0]['msg']}") from error
        self.layout = Layout.read(_unfolded(self._part(MAX_LAYOUT_BYTES)))
        if self.header.result_bytes != self.layout.file_bytes:
            raise _malformed(f"{self.header.result_bytes} bytes announced, {self.layout.file_bytes} laid out")
        if not set(self.header.whole) <= set(self.layout.by_name):
            raise _malformed("a tensor that is to be carried whole isn't laid out")

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[PatchReader]:
        with path.open("rb") as stream:
            yield cls(stream)

    @property
    def spans(self) -> Iterator[Span]:
        return self.layout.spans(self.header.block_bytes)

    def blocks(self) -> Iterator[bytes]:
        """One for each span, in order; to be gone through once, to the end."""
        for span in self.spans:
            yield self._part(max_block_bytes((span.stop - span.start) // span.word_bytes, span.word_bytes))
        digest = self._hasher.digest()
        if self._stream.read(HASH_BYTES + 1) != digest:
            raise _malformed("its last bytes aren't the hash of those before")

    def _part(self, limit: int) -> bytes:
        (size,) = LENGTH.unpack(self._read(LENGTH.size))
        if size > limit:
            raise _malformed(f"a part of {size} bytes, where {limit} are the most")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) != size:
            raise _malformed("it ends early")
        self._hasher.update(data)
        return data


def read_header(path: Path) -> PatchHeader:
    """What a patch says that it is about. Raises MalformedFile, OSError."""
    with PatchReader.open(path) as patch:
        return patch.header


def _unfolded(frame: bytes) -> bytes:
    try:
        size = zstandard.get_frame_parameters(frame).content_size
        if not 0 < size <= MAX_LAYOUT_BYTES:
            raise _malformed(f"a layout of {size} bytes")
        return zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _malformed(f"its layout: {error}") from error


def _malformed(why: str) -> MalformedFile:
    return MalformedFile("a patch can't be read", why, "fetch the patch again")
