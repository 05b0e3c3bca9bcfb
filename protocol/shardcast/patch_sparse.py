"""Sparse blocks: a gap and a small difference for each word that changed.

How likely an optimizer changes a bf16 value goes by its exponent: a step is about as large as the learning rate, while
the next value is 2^-8 of the value away. So words are parted into classes by magnitude, each of the lower classes
half of the one above, and a class's gaps are counted in words of that class alone. That takes a third off.

In: words before and after. Out: `SparseBlock`, its bytes, and back. Two-byte words have compiled passes
(`patch_compiled.py`) with the same results as the plain ones (`patch_plain.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from protocol.kernels import are_enabled
from protocol.shardcast.patch_coding import (
    Bytes,
    Changes,
    Ints,
    PartReader,
    Thresholds,
    Words,
    from_planes,
    malformed,
    number,
    planes,
    squeezed,
    unsqueezed,
)
from protocol.shardcast.patch_symbols import KIND_BITS, MAGNITUDE, MAX_CLASSES, SKIP, WIDE

KIND_MASK = np.uint8((1 << KIND_BITS) - 1)
MAX_SHIFT = 24
MOST_LOW_BITS = 2
"""Of a word: c changes of n words have c · log2(n / 2c) bits at most, and there are eight classes."""
SAMPLE = 1024
"""Words that an encoder looks at to choose thresholds."""


@dataclass(frozen=True, eq=False)
class Gaps:
    """The changes of a block, class after class: the words since the last one of the class, and the difference."""

    gaps: npt.NDArray[np.uint32]
    differences: Words
    num_changed: Ints
    """Of each class."""

    @property
    def parts(self) -> list[slice]:
        """Where each class's changes are."""
        ends = np.cumsum(self.num_changed).tolist()
        return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


@dataclass(frozen=True, eq=False)
class SparseBlock:
    """The parts of a sparse block. Classes lie one after the other in `symbols`, `low` and `wide`.

    `thresholds` rise, uint16 [classes - 1]; `shifts` and `num_symbols` int64 [classes]; `low` are bits, lowest first.
    """

    thresholds: Thresholds
    shifts: Ints
    num_symbols: Ints
    symbols: Bytes
    low: Bytes
    wide: Words

    @property
    def kinds(self) -> Bytes:
        return self.symbols & KIND_MASK

    @property
    def starts(self) -> Ints:
        """Where each class's symbols start."""
        return np.cumsum(self.num_symbols) - self.num_symbols

    def per_class(self, flags: npt.NDArray[np.bool_]) -> Ints:
        """How many of each class's symbols are flagged."""
        before = np.concatenate(([0], np.cumsum(flags, dtype=np.int64)))
        sums: Ints = before[self.starts + self.num_symbols] - before[self.starts]
        return sums

    def to_bytes(self) -> bytes:
        head = bytes([len(self.shifts)]) + self.thresholds.astype("<u2").tobytes()
        for shift, count in zip(self.shifts.tolist(), self.num_symbols.tolist(), strict=True):
            head += bytes([shift]) + number(count)
        symbols = squeezed(self.symbols.tobytes())
        wide = squeezed(planes(self.wide)) if len(self.wide) else b""
        return head + number(len(symbols)) + number(len(wide)) + symbols + wide + self.low.tobytes()

    @classmethod
    def read(cls, body: bytes, num_words: int, dtype: np.dtype[np.unsignedinteger]) -> SparseBlock:
        """Each part as long as the others say. Raises MalformedFile."""
        reader = PartReader(body)
        num_classes = reader.byte()
        if not 1 <= num_classes <= (MAX_CLASSES if dtype.itemsize == 2 else 1):
            raise malformed(f"{num_classes} classes")
        thresholds = np.frombuffer(reader.take(2 * (num_classes - 1)), dtype="<u2").astype(np.uint16)
        if np.any(thresholds[1:] <= thresholds[:-1]):
            raise malformed("thresholds don't rise")
        rows = [(reader.byte(), reader.number()) for _ in range(num_classes)]
        shifts, counts = np.ascontiguousarray(np.array(rows, dtype=np.int64).T)
        if shifts.max() > MAX_SHIFT or counts.max() > 2 * num_words or counts.sum() > 2 * num_words:
            raise malformed(f"{counts.sum()} symbols, shifts up to {shifts.max()}, for {num_words} words")
        symbols_bytes, wide_bytes = reader.number(), reader.number()
        symbols = np.frombuffer(unsqueezed(reader.take(symbols_bytes), int(counts.sum())), dtype=np.uint8)
        wide = _read_wide(reader.take(wide_bytes), symbols, dtype)
        block = cls(thresholds, shifts, counts, symbols, np.frombuffer(reader.rest(), dtype=np.uint8), wide)
        num_changed = block.per_class(block.kinds != SKIP)
        num_low_bits = int((num_changed * shifts).sum())
        if num_changed.sum() > num_words or num_low_bits > MOST_LOW_BITS * num_words:
            raise malformed(f"{num_changed.sum()} changes of {num_words} words, {num_low_bits} low bits")
        if len(block.low) != -(-num_low_bits // 8):
            raise malformed(f"{len(block.low)} bytes for {num_low_bits} low bits")
        return block


def _read_wide(frame: bytes, symbols: Bytes, dtype: np.dtype[np.unsignedinteger]) -> Words:
    num_wide = int(np.count_nonzero(symbols & KIND_MASK == WIDE))
    if not num_wide and not frame:
        return np.zeros(0, dtype=dtype)
    return from_planes(unsqueezed(frame, num_wide * dtype.itemsize), dtype)


class Way(Protocol):
    """The passes of a sparse block, plain or compiled."""

    def gaps_of(self, old: Words, new: Words, thresholds: Thresholds, num_changed: int) -> Gaps: ...

    def packed(self, found: Gaps, thresholds: Thresholds, shifts: Ints, num_words: int) -> SparseBlock: ...

    def located(self, block: SparseBlock, old: Words) -> Changes: ...


def way_for(*words: Words) -> Way:
    """The compiled passes where there are any for all of these words."""
    from protocol.shardcast import patch_plain

    if not all(is_compiled(one) for one in words):
        return patch_plain
    from protocol.shardcast import patch_compiled

    return patch_compiled


def make_sparse(old: Words, new: Words, num_changed: int, octave: int) -> SparseBlock:
    """`num_changed` words differ. `octave`: see `encode_block`."""
    way, thresholds = way_for(old, new), choose_thresholds(old, octave)
    found = way.gaps_of(old, new, thresholds, num_changed)
    members = _members_by_class(old, thresholds)
    shifts = [_shift(m, c) for m, c in zip(members, found.num_changed.tolist(), strict=True)]
    return way.packed(found, thresholds, np.array(shifts, dtype=np.int64), len(old))


def read_sparse(body: bytes, old: Words) -> Changes:
    """Raises MalformedFile."""
    return way_for(old).located(SparseBlock.read(body, len(old), old.dtype), old)


def is_compiled(words: Words) -> bool:
    """Whether there is a compiled pass for these words."""
    return words.dtype == np.uint16 and words.flags.carray and are_enabled()


def choose_thresholds(old: Words, octave: int) -> Thresholds:
    """Seven steps of a factor of two around the median: the lowest class has the values far below it."""
    if not octave:
        return np.zeros(0, dtype=np.uint16)
    sample = old[:: -(-len(old) // SAMPLE)] & np.uint16(MAGNITUDE)
    median = int(np.partition(sample, len(sample) // 2)[len(sample) // 2]) // octave
    steps = np.arange(median + 2 - (MAX_CLASSES - 1), median + 2) * octave
    return steps[(steps > 0) & (steps <= MAGNITUDE)].astype(np.uint16)


def classes_of(words: Words, thresholds: Thresholds) -> Ints:
    """Each word's class: how many thresholds its magnitude has reached."""
    if not len(thresholds):
        return np.zeros(len(words), dtype=np.int64)
    return np.searchsorted(thresholds, words & np.uint16(MAGNITUDE), side="right").astype(np.int64)


def _members_by_class(old: Words, thresholds: Thresholds) -> Sequence[int]:
    """About how many words each class has, by a sample. It only chooses shifts."""
    sample = old[:: -(-len(old) // (4 * SAMPLE))]
    counts = np.bincount(classes_of(sample, thresholds), minlength=len(thresholds) + 1)
    return [count * len(old) // len(sample) for count in counts.tolist()]


def _shift(num_members: int, num_changed: int) -> int:
    """Gaps are num_members / num_changed in the mean: the quotient keeps about one bit, the other bits are noise."""
    return max(0, (num_members // max(1, 2 * num_changed)).bit_length() - 1)
