"""Where the words of a patch's blocks come from: a safetensors file, or the tensors of a running engine.

In: a layout, and tensors by name. Out: each span's words, in a buffer of its own, wherever the tensors lie.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from protocol.errors import MalformedFile, VerificationFailed
from protocol.shardcast.patch_coding import Words
from protocol.shardcast.patch_layout import Layout, Span, StoredTensor


class Tensors(Protocol):
    """Tensors of which any bytes can be had."""

    def copy(self, name: str, start: int, into: memoryview) -> None:
        """Fill `into` with a tensor's bytes from `start` on."""
        ...


class FileTensors:
    """A safetensors file's. Read, not mapped: a file that is cut short meanwhile is an error and no signal."""

    def __init__(self, file: BinaryIO, layout: Layout) -> None:
        self._file = file
        self.layout = layout
        self._data_start = layout.file_bytes - layout.data_bytes

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[FileTensors]:
        with path.open("rb") as file:
            yield cls(file, Layout.of_file(file))

    def copy(self, name: str, start: int, into: memoryview) -> None:
        place = self._data_start + self.layout.by_name[name].start + start
        if os.preadv(self._file.fileno(), [into], place) != len(into):
            raise MalformedFile("a weights file ended early", f"{name} at byte {place}", "fetch the file again")


class LiveTensors:
    """Arrays of any dtype, by name."""

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        self._bytes = {name: flat_words(array, 1) for name, array in tensors.items()}

    def check(self, tensor: StoredTensor) -> None:
        """Raises VerificationFailed unless there is a tensor of this size."""
        found = self._bytes.get(tensor.name)
        if found is None or len(found) != tensor.stop - tensor.start:
            size = "missing" if found is None else f"{len(found)} bytes"
            why = f"{tensor.name:.100} is {size}, not {tensor.stop - tensor.start}"
            raise VerificationFailed("the patch isn't for these tensors", why, "load the version whole")

    def copy(self, name: str, start: int, into: memoryview) -> None:
        into[:] = self._bytes[name][start : start + len(into)].data


def flat_words(array: npt.NDArray[Any], word_bytes: int) -> Words:
    """An array's own memory as unsigned words, 1-D. Raises ValueError where it isn't in C order."""
    if not array.flags.c_contiguous:
        raise ValueError("a tensor to patch must lie in C order")
    return array.reshape(-1).view(f"u{word_bytes}")


class WordSource:
    """The words that a span of a layout has in some tensors: by name, wherever they lie; zeros for those of `whole`.

    There is one buffer: what `words` gives is good until it is asked again.
    """

    def __init__(self, layout: Layout, tensors: Tensors, whole: Sequence[str] = ()) -> None:
        self._filled = [tensor for tensor in layout.tensors if tensor.start < tensor.stop]
        self._starts = [tensor.start for tensor in self._filled]
        self._tensors = tensors
        self._whole = frozenset(whole)
        self._buffer = np.empty(0, dtype=np.uint8)

    def words(self, span: Span) -> Words:
        size = span.stop - span.start
        if len(self._buffer) < size:
            self._buffer = np.empty(size, dtype=np.uint8)
        target = self._buffer[:size]
        for tensor, start, stop in self.pieces(span):
            part = target[start - span.start : stop - span.start]
            if tensor.name in self._whole:
                part[:] = 0
            else:
                self._tensors.copy(tensor.name, start - tensor.start, part.data)
        words: Words = target.view(f"u{span.word_bytes}")
        return words

    def pieces(self, span: Span) -> Iterator[tuple[StoredTensor, int, int]]:
        """The tensors that a span touches, and from where to where, in bytes of the layout's data."""
        index = bisect_right(self._starts, span.start) - 1
        while index < len(self._filled) and self._filled[index].start < span.stop:
            tensor = self._filled[index]
            yield tensor, max(tensor.start, span.start), min(tensor.stop, span.stop)
            index += 1
