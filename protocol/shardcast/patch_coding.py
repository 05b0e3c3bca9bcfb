"""What parts of a patch are written in: zigzag, byte planes, zstd frames of a known length, LEB128 numbers.

In: words and bytes. Out: bytes and words. What is read may come from anybody: no frame unfolds to more than its reader
expects, and everything raises MalformedFile where bytes make no sense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from protocol.errors import MalformedFile

LEVEL = 1

Words = npt.NDArray[np.unsignedinteger[Any]]
"""Values of a tensor as unsigned integers of their size, little-endian."""
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Thresholds = npt.NDArray[np.uint16]


@dataclass(frozen=True, eq=False)
class Changes:
    """Which words of a block changed: `positions` in any order, each at most once, and the `values` they have now."""

    positions: npt.NDArray[np.uint32]
    values: Words

    def write(self, words: Words) -> None:
        """Make the block's old words its new ones."""
        words[self.positions] = self.values


def zigzag(differences: Words) -> Words:
    """Small negative numbers become small ones: 0, −1, 1, −2 … are 0, 1, 2, 3 …"""
    one, top = differences.dtype.type(1), differences.dtype.type(8 * differences.itemsize - 1)
    return (differences << one) ^ (0 - (differences >> top))


def unzigzag(coded: Words) -> Words:
    one = coded.dtype.type(1)
    return (coded >> one) ^ (0 - (coded & one))


def planes(words: Words) -> bytes:
    """All lowest bytes, then all next ones …"""
    return words.view(np.uint8).reshape(len(words), words.itemsize).T.tobytes()


def from_planes(data: bytes, dtype: np.dtype[Any]) -> Words:
    planes = np.frombuffer(data, dtype=np.uint8).reshape(dtype.itemsize, -1)
    words: Words = np.ascontiguousarray(planes.T).reshape(-1).view(dtype)
    return words


def squeezed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL, write_content_size=True).compress(data)


def unsqueezed(frame: bytes, num_bytes: int) -> bytes:
    """What a frame holds, if it says that it is so long: it can't unfold to more."""
    try:
        if zstandard.get_frame_parameters(frame).content_size != num_bytes:
            raise malformed(f"a frame isn't of {num_bytes} bytes")
        return zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise malformed(f"a frame can't be read: {error}") from error


def number(value: int) -> bytes:
    """LEB128: seven bits a byte, lowest first, the eighth says that more follow."""
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


class PartReader:
    """A block's parts in order. Raises MalformedFile past its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 56:
                raise malformed("a number of more than eight bytes")

    def take(self, count: int) -> bytes:
        if count > len(self._data) - self._place:
            raise malformed(f"{count} bytes wanted at {self._place} of {len(self._data)}")
        self._place += count
        return self._data[self._place - count : self._place]

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._place)


def malformed(why: str) -> MalformedFile:
    return MalformedFile("a block of a patch can't be read", why, "fetch the patch again")
