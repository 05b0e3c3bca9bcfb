"""The passes of a sparse block in numpy: for words of any size, and for two-byte words where kernels aren't enabled.

The results are those of `patch_compiled.py`, to the byte.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.shardcast.patch_coding import Bytes, Changes, Ints, Thresholds, Words, malformed, unzigzag, zigzag
from protocol.shardcast.patch_sparse import Gaps, SparseBlock, classes_of
from protocol.shardcast.patch_symbols import KIND_BITS, NUM_NARROW, QUOTIENT_BITS, SKIP, WIDE


def gaps_of(old: Words, new: Words, thresholds: Thresholds, num_changed: int) -> Gaps:
    classes, differences = classes_of(old, thresholds), new - old
    gaps, changes = [], []
    for c in range(len(thresholds) + 1):
        of_class = differences[classes == c]
        ranks = np.flatnonzero(of_class)
        gaps.append(np.diff(ranks, prepend=-1) - 1)
        changes.append(of_class[ranks])
    counts = np.array([len(part) for part in changes], dtype=np.int64)
    return Gaps(np.concatenate(gaps).astype(np.uint32), np.concatenate(changes), counts)


def packed(found: Gaps, thresholds: Thresholds, shifts: Ints, num_words: int) -> SparseBlock:
    symbols, low, kinds = [], [], _kinds(found.differences)
    for part, shift in zip(found.parts, shifts.tolist(), strict=True):
        gaps = found.gaps[part].astype(np.int64)
        symbols.append(_symbols_of(gaps >> shift, kinds[part]))
        low.append((gaps[:, None] >> np.arange(shift) & 1).astype(np.uint8).reshape(-1))
    counts = np.array([len(part) for part in symbols], dtype=np.int64)
    bits = np.packbits(np.concatenate(low), bitorder="little")
    wide = zigzag(found.differences[kinds == WIDE])
    return SparseBlock(thresholds, shifts, counts, np.concatenate(symbols), bits, wide)


def _kinds(differences: Words) -> Ints:
    coded = zigzag(differences)
    # Zigzag has −1, 1, −2, 2 as 1, 2, 3, 4; kinds have 1, −1, 2, −2 as 0, 1, 2, 3.
    narrow = (coded >= 1) & (coded <= NUM_NARROW)
    return np.where(narrow, (coded.astype(np.int64) - 1) ^ 1, WIDE)


def _symbols_of(quotients: Ints, kinds: Ints) -> Bytes:
    """Each change's symbol, after as many skips as its quotient needs."""
    units, most = quotients >> QUOTIENT_BITS, 1 << QUOTIENT_BITS
    num_skips = -(-units // most)
    ends = np.cumsum(num_skips + 1) - 1
    symbols = np.full(int(ends[-1]) + 1 if len(ends) else 0, (most - 1) << KIND_BITS | SKIP, dtype=np.uint8)
    last = ends[num_skips > 0] - 1
    symbols[last] = ((units - 1) % most)[num_skips > 0] << KIND_BITS | SKIP
    symbols[ends] = (quotients % most) << KIND_BITS | kinds
    return symbols


def located(block: SparseBlock, old: Words) -> Changes:
    """Raises MalformedFile where a change lies outside of the block."""
    classes, bits = classes_of(old, block.thresholds), np.unpackbits(block.low, bitorder="little")
    is_change, bit, places = block.kinds != SKIP, 0, []
    for c, (start, count) in enumerate(zip(block.starts.tolist(), block.num_symbols.tolist(), strict=True)):
        part, shift = slice(start, start + count), int(block.shifts[c])
        num_low = shift * int(np.count_nonzero(is_change[part]))
        low = bits[bit : bit + num_low].reshape(-1, shift) if shift else None
        bit += num_low
        ranks, members = _ranks(block.symbols[part], is_change[part], low), np.flatnonzero(classes == c)
        if len(ranks) and ranks[-1] >= len(members):
            raise malformed("its changes lie outside of it")
        places.append(members[ranks])
    positions, kinds = np.concatenate(places), block.kinds[is_change]
    # −1 is the largest word, −2 the one before: arithmetic of unsigned words goes round.
    differences = np.array([1, -1, 2, -2, 3, -3, 0, 0]).astype(old.dtype)[kinds]
    differences[kinds == WIDE] = unzigzag(block.wide)
    return Changes(positions.astype(np.uint32), old[positions] + differences)


def _ranks(symbols: Bytes, is_change: npt.NDArray[np.bool_], low: Bytes | None) -> Ints:
    """Which members of its class a class's symbols change, int64, rising. `low`: uint8 [changes, shift] of bits."""
    if len(symbols) and not is_change[-1]:
        raise malformed("its symbols end in a skip")
    numbers = (symbols >> KIND_BITS).astype(np.int64)
    until = np.cumsum(np.where(is_change, numbers, (numbers + 1) << QUOTIENT_BITS))[is_change]
    gaps = np.diff(until, prepend=0)
    if low is not None:
        gaps <<= low.shape[1]
        for place in range(low.shape[1]):
            gaps += low[:, place].astype(np.int64) << place
    ranks: Ints = np.cumsum(gaps + 1) - 1
    return ranks
