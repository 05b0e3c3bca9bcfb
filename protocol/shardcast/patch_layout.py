"""What a safetensors file holds and where: its header, read as strictly as the format allows.

In: bytes of a header, from anybody. Out: `Layout`: tensors in the order of their bytes, without a gap between them.
The blocks of a patch follow that order, so each can be made and used with nothing else in memory.
Format: https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import from_json

from protocol.errors import MalformedFile

MAX_LAYOUT_BYTES = 16 << 20
MAX_DIMENSIONS = 64
LENGTH = struct.Struct("<Q")
_DTYPES = {
    4: ("F4",),
    6: ("F6_E2M3", "F6_E3M2"),
    8: ("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"),
    16: ("I16", "U16", "F16", "BF16"),
    32: ("I32", "U32", "F32"),
    64: ("I64", "U64", "F64", "C64"),
}
BITS = {dtype: bits for bits, dtypes in _DTYPES.items() for dtype in dtypes}
OCTAVES = {"BF16": 1 << 7, "F16": 1 << 10}
"""By how much the bits of a two-byte float rise when its magnitude doubles."""


@dataclass(frozen=True)
class StoredTensor:
    """Bytes `start` to `stop` of the data that follows the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def word_bytes(self) -> int:
        """What a patch takes for one value: 1, 2, 4 or 8 bytes; values of less than a byte are taken together."""
        return max(1, BITS[self.dtype] // 8)

    def is_like(self, other: StoredTensor | None) -> bool:
        return other is not None and (self.dtype, self.shape) == (other.dtype, other.shape)


@dataclass(frozen=True)
class Span:
    """A stretch of data, all of words of one size; `octave` as `encode_block` wants it."""

    start: int
    stop: int
    word_bytes: int
    octave: int


@dataclass(frozen=True)
class Layout:
    """A header's `text`, as it lies in the file after its length, and the tensors that it names, by place."""

    text: bytes
    tensors: tuple[StoredTensor, ...]

    @classmethod
    def read(cls, text: bytes) -> Layout:
        """Raises MalformedFile where this isn't the header of a safetensors file. The last few are remembered."""
        return _read(text)

    @classmethod
    def of_file(cls, file: BinaryIO) -> Layout:
        """The layout of an open file of which nothing is read yet; its size has to fit. Raises MalformedFile."""
        prefix = file.read(LENGTH.size)
        size = LENGTH.unpack(prefix)[0] if len(prefix) == LENGTH.size else 0
        if not 0 < size <= MAX_LAYOUT_BYTES:
            raise _malformed(f"a header of {size} bytes")
        layout = cls.read(file.read(size))
        found = file.seek(0, 2)
        if found != layout.file_bytes:
            raise _malformed(f"{found} bytes, not {layout.file_bytes} as its header says")
        return layout

    @property
    def prefix(self) -> bytes:
        """All of the file that comes before data."""
        return LENGTH.pack(len(self.text)) + self.text

    @property
    def data_bytes(self) -> int:
        return self.tensors[-1].stop if self.tensors else 0

    @property
    def file_bytes(self) -> int:
        return LENGTH.size + len(self.text) + self.data_bytes

    @cached_property
    def by_name(self) -> dict[str, StoredTensor]:
        return {tensor.name: tensor for tensor in self.tensors}

    def spans(self, block_bytes: int) -> Iterator[Span]:
        """What each block of a patch is about: at most `block_bytes`, a multiple of 8, of words of one size."""
        for run in self._runs():
            for start in range(run.start, run.stop, block_bytes):
                yield Span(start, min(start + block_bytes, run.stop), run.word_bytes, run.octave)

    def _runs(self) -> Iterator[Span]:
        """Neighbours of one word size, whatever their dtype; empty tensors divide nothing."""
        run: Span | None = None
        for tensor in self.tensors:
            if tensor.start == tensor.stop:
                continue
            octave = OCTAVES.get(tensor.dtype, 0)
            if run is not None and (run.word_bytes, run.octave) == (tensor.word_bytes, octave):
                run = Span(run.start, tensor.stop, run.word_bytes, octave)
                continue
            if run is not None:
                yield run
            run = Span(tensor.start, tensor.stop, tensor.word_bytes, octave)
        if run is not None:
            yield run


@lru_cache(maxsize=4)
def _read(text: bytes) -> Layout:
    try:
        from_json(text)  # nesting ends here as an error: json would follow it until the stack overflows
        document = json.loads(text, object_pairs_hook=_without_repeats)
    except ValueError as error:
        raise _malformed(f"its header is no JSON: {str(error)[:100]}") from error
    if not isinstance(document, dict):
        raise _malformed("its header is no table")
    tensors = [_tensor(name, row) for name, row in document.items() if name != "__metadata__"]
    tensors.sort(key=lambda tensor: (tensor.start, tensor.stop))
    end = 0
    for tensor in tensors:
        if tensor.start != end:
            raise _malformed(f"{tensor.name:.100} begins at byte {tensor.start}, not at {end}")
        end = tensor.stop
    return Layout(text, tuple(tensors))


def layout_of(path: Path) -> Layout:
    """The layout of a safetensors file. Raises MalformedFile, OSError."""
    with path.open("rb") as file:
        return Layout.of_file(file)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name comes twice")
    return table


def _tensor(name: str, row: Any) -> StoredTensor:
    if not isinstance(row, dict) or set(row) != {"dtype", "shape", "data_offsets"}:
        raise _malformed(f"{name:.100} has other fields than dtype, shape and data_offsets")
    dtype, shape, offsets = row["dtype"], row["shape"], row["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _malformed(f"{name:.100} is of dtype {dtype!r:.40}")
    if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS or not _are_sizes(offsets) or len(offsets) != 2:
        raise _malformed(f"{name:.100} has shape {shape!r:.100} at {offsets!r:.100}")
    start, stop = offsets
    if 8 * (stop - start) != math.prod(shape) * BITS[dtype]:
        raise _malformed(f"{name:.100}, {dtype} {shape!r:.100}, is at {offsets!r:.100}")
    return StoredTensor(name, dtype, tuple(shape), start, stop)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**53 for value in values)


def _malformed(why: str) -> MalformedFile:
    return MalformedFile("this is no safetensors file that a patch can be about", why, "fetch the file again")
