"""The passes of a sparse block of two-byte words, compiled. The results are those of `patch_plain.py`, to the byte."""

from __future__ import annotations

import numpy as np

from protocol.shardcast import patch_kernels
from protocol.shardcast.patch_coding import Changes, Ints, Thresholds, Words, malformed
from protocol.shardcast.patch_sparse import Gaps, SparseBlock
from protocol.shardcast.patch_symbols import QUOTIENT_BITS, SKIP, WIDE


def gaps_of(old: Words, new: Words, thresholds: Thresholds, num_changed: int) -> Gaps:
    classes = np.empty(num_changed, dtype=np.uint8)
    gaps, differences = np.empty(num_changed, dtype=np.uint32), np.empty(num_changed, dtype=np.uint16)
    patch_kernels.collect(old, new, thresholds, classes, gaps, differences)
    order = np.argsort(classes, kind="stable")
    counts = np.bincount(classes, minlength=len(thresholds) + 1).astype(np.int64)
    return Gaps(gaps[order], differences[order], counts)


def packed(found: Gaps, thresholds: Thresholds, shifts: Ints, num_words: int) -> SparseBlock:
    symbols = np.empty(len(found.gaps) + (num_words >> QUOTIENT_BITS), dtype=np.uint8)
    low = np.zeros((int((found.num_changed * shifts).sum()) + 7) // 8, dtype=np.uint8)
    wide = np.empty(len(found.gaps), dtype=np.uint16)
    made, counts = (0, 0, 0), []
    for part, shift in zip(found.parts, shifts.tolist(), strict=True):
        before = made[0]
        gaps, differences = found.gaps[part], found.differences[part]
        made = patch_kernels.pack(gaps, differences, shift, symbols, made[0], low, made[1], wide, made[2])
        counts.append(made[0] - before)
    return SparseBlock(thresholds, shifts, np.array(counts, dtype=np.int64), symbols[: made[0]], low, wide[: made[2]])


def located(block: SparseBlock, old: Words) -> Changes:
    """Raises MalformedFile where a change lies outside of the block."""
    num_changed, num_wide = block.per_class(block.kinds != SKIP), block.per_class(block.kinds == WIDE)
    low_bits, total = num_changed * block.shifts, int(num_changed.sum())
    positions, values = np.empty(total, dtype=np.uint32), np.empty(total, dtype=np.uint16)
    # Copies are writable, as the compiled types are.
    found = patch_kernels.locate(
        old, block.thresholds, block.symbols.copy(), block.starts, block.starts + block.num_symbols,
        block.low.copy(), np.cumsum(low_bits) - low_bits, block.shifts,
        block.wide.copy(), np.cumsum(num_wide) - num_wide, positions, values,
    )  # fmt: skip
    if found != total:
        raise malformed("its changes lie outside of it")
    return Changes(positions, values)
