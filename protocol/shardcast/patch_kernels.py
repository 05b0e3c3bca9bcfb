"""Compiled passes over words of two bytes: which of a block's words changed, and what they become.

A block is gone through 64 words at a time. Comparisons of 64 words with one threshold, or with their counterparts,
come out as the bits of one integer, so that a chunk without changes costs little more than reading it.

In: uint16 arrays in C order, 1-D. Out: the numbers that `protocol/shardcast/patch_blocks.py` packs and unpacks, the
only caller; it has the same passes in numpy. All compiled functions of patches are in this file: the cache on disk
looks at no other for changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from protocol.kernels import helper, kernel
from protocol.shardcast.patch_symbols import (
    KIND_BITS,
    MAGNITUDE,
    MAX_CLASSES,
    NUM_NARROW,
    QUOTIENT_BITS,
    SKIP,
    WIDE,
)

CHUNK = 64
"""Words of one step: the bits of an integer."""
OUT_OF_SYMBOLS = -1
"""What `locate` returns where a block doesn't add up."""

U64 = np.uint64
NONE, ONE, ALL = U64(0), U64(1), U64(0xFFFFFFFFFFFFFFFF)
CHUNK_BITS = U64(CHUNK)
BYTE_BITS = U64(8)

Words = npt.NDArray[np.uint16]
Bytes = npt.NDArray[np.uint8]
Gaps = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]
Int = int | np.signedinteger[Any]


def _loaded(context: Any, builder: Any, array_type: Any, array: Any, start: Any) -> Any:
    """64 words of an array as one vector."""
    data = context.make_array(array_type)(context, builder, array).data
    vector = ir.VectorType(ir.IntType(16), CHUNK)
    pointer = builder.bitcast(builder.gep(data, [start]), vector.as_pointer())
    return builder.load(pointer, align=2)


def _splat(builder: Any, value: Any) -> Any:
    vector = ir.VectorType(ir.IntType(16), CHUNK)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), CHUNK), [0] * CHUNK)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


def _different(typing_context: Any, old: Any, new: Any, start: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left = _loaded(context, builder, signature.args[0], args[0], args[2])
        right = _loaded(context, builder, signature.args[1], args[1], args[2])
        return builder.bitcast(builder.icmp_unsigned("!=", left, right), ir.IntType(CHUNK))

    return types.uint64(old, new, types.int64), generate


def _below(typing_context: Any, words: Any, start: Any, threshold: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loaded = _loaded(context, builder, signature.args[0], args[0], args[1])
        mask = _splat(builder, ir.Constant(ir.IntType(16), MAGNITUDE))
        bits = builder.icmp_unsigned("<", builder.and_(loaded, mask), _splat(builder, args[2]))
        return builder.bitcast(bits, ir.IntType(CHUNK))

    return types.uint64(words, types.int64, types.uint16), generate


def _population(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


def _lowest(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


different = cast(Callable[[Words, Words, int], Any], intrinsic(_different))
"""Bit i: whether word `start + i` differs."""
below = cast(Callable[[Words, int, Any], Any], intrinsic(_below))
"""Bit i: whether the magnitude of word `start + i` is below the threshold."""
population = cast(Callable[[Any], Any], intrinsic(_population))
lowest = cast(Callable[[Any], Any], intrinsic(_lowest))
"""Number of the lowest bit that is set."""


@helper
def padded(words: Words, start: int) -> Words:
    """The words from `start` on, and zeros up to a whole chunk."""
    chunk = np.zeros(CHUNK, dtype=np.uint16)
    for i in range(words.shape[0] - start):
        chunk[i] = words[start + i]
    return chunk


@kernel("int64(uint16[::1], uint16[::1])")
def count(old: Words, new: Words) -> Int:
    """How many words differ."""
    num_words, found = old.shape[0], NONE
    whole = num_words // CHUNK * CHUNK
    for start in range(0, whole, CHUNK):
        found += population(different(old, new, start))
    if whole < num_words:
        found += population(different(padded(old, whole), padded(new, whole), 0))
    return np.int64(found)


@kernel("void(uint16[::1], uint16[::1], uint16[::1], uint8[::1], uint32[::1], uint16[::1])")
def collect(old: Words, new: Words, thresholds: Words, classes: Bytes, gaps: Gaps, differences: Words) -> None:
    """Every changed word's class, gap and difference, those of a class in their order.

    A gap is the number of unchanged words of the same class since the last changed one.
    """
    num_words, num_thresholds, found = old.shape[0], thresholds.shape[0], 0
    since = np.zeros(MAX_CLASSES, dtype=np.uint64)
    for start in range(0, num_words, CHUNK):
        left, right, place, within = old, new, start, ALL
        if start + CHUNK > num_words:
            left, right, place = padded(old, start), padded(new, start), 0
            within = ~(ALL << U64(num_words - start))
        bits = different(left, right, place)
        before = NONE
        for c in range(num_thresholds + 1):
            until = below(left, place, thresholds[c]) & within if c < num_thresholds else within
            members = until & ~before
            before = until
            hits, num_passed = members & bits, NONE
            while hits != NONE:
                i = lowest(hits)
                hits &= hits - ONE
                rank = population(members & ((ONE << i) - ONE))
                classes[found] = c
                gaps[found] = since[c] + rank - num_passed
                differences[found] = right[place + np.int64(i)] - left[place + np.int64(i)]
                found += 1
                since[c] = NONE
                num_passed = rank + ONE
            since[c] += population(members) - num_passed


@kernel("UniTuple(int64, 3)(uint32[::1], uint16[::1], int64, uint8[::1], int64, uint8[::1], int64, uint16[::1], int64)")
def pack(
    gaps: Gaps,
    differences: Words,
    shift: int,
    symbols: Bytes,
    num_symbols: int,
    low: Bytes,
    num_low: int,
    wide: Words,
    num_wide: int,
) -> tuple[int, int, int]:
    """One class's symbols, low bits and wide differences, put behind those that are there; the new numbers of each.

    `low` is zero from bit `num_low` on.
    """
    mask = (ONE << U64(shift)) - ONE
    for n in range(gaps.shape[0]):
        quotient = U64(gaps[n]) >> U64(shift)
        units = np.int64(quotient >> U64(QUOTIENT_BITS))
        while units > 0:
            skipped = units if units < 1 << QUOTIENT_BITS else np.int64(1 << QUOTIENT_BITS)
            symbols[num_symbols] = np.uint8(((skipped - 1) << KIND_BITS) | SKIP)
            num_symbols += 1
            units -= skipped
        difference = np.int16(differences[n])
        size = abs(np.int64(difference))
        kind = 2 * size - (1 if difference < 0 else 2)
        if size > NUM_NARROW // 2:
            kind = np.int64(WIDE)
            wide[num_wide] = np.uint16((np.int64(difference) << 1) ^ (np.int64(difference) >> 63))
            num_wide += 1
        rest = np.int64(quotient & U64((1 << QUOTIENT_BITS) - 1))
        symbols[num_symbols] = np.uint8((rest << KIND_BITS) | kind)
        num_symbols += 1
        bits, num_bits = U64(gaps[n]) & mask, shift
        while num_bits > 0:
            room = 8 - (num_low & 7)
            low[num_low >> 3] |= np.uint8((bits << U64(num_low & 7)) & U64(255))
            taken = min(room, num_bits)
            bits >>= U64(taken)
            num_bits -= taken
            num_low += taken
    return num_symbols, num_low, num_wide


@helper
def next_gap(
    symbols: Bytes, ends: Ints, places: Ints, low: Bytes, low_places: Ints, shifts: Ints, c: int
) -> tuple[Int, Int]:
    """Gap and kind of a class's next change; a gap of −1 where its symbols are used up, −2 where they end in a skip."""
    if places[c] == ends[c]:
        return -1, 0
    quotient = np.int64(0)
    while places[c] < ends[c]:
        symbol = np.int64(symbols[places[c]])
        places[c] += 1
        kind, number = symbol & ((1 << KIND_BITS) - 1), symbol >> KIND_BITS
        if kind == SKIP:
            quotient += (number + 1) << QUOTIENT_BITS
            continue
        gap, num_bits, place = np.int64(0), np.int64(0), low_places[c]
        while num_bits < shifts[c]:
            gap |= np.int64(low[place >> 3] >> (place & 7)) << num_bits
            taken = 8 - (place & 7)
            num_bits += taken
            place += taken
        low_places[c] += shifts[c]
        gap &= (1 << shifts[c]) - 1
        return ((quotient + number) << shifts[c]) + gap, kind
    return -2, 0


@kernel(
    "int64(uint16[::1], uint16[::1], uint8[::1], int64[::1], int64[::1], "
    "uint8[::1], int64[::1], int64[::1], uint16[::1], int64[::1], uint32[::1], uint16[::1])"
)
def locate(
    old: Words,
    thresholds: Words,
    symbols: Bytes,
    places: Ints,
    ends: Ints,
    low: Bytes,
    low_places: Ints,
    shifts: Ints,
    wide: Words,
    wide_places: Ints,
    positions: Gaps,
    values: Words,
) -> Int:
    """Where words change and what they become; how many did, or OUT_OF_SYMBOLS where the block doesn't add up.

    Class c's symbols are `symbols[places[c]:ends[c]]`. The caller has seen to it that `low`, `wide`, `positions` and
    `values` hold as much as the symbols ask for.
    """
    num_words, num_thresholds, found = old.shape[0], thresholds.shape[0], 0
    left, kinds = np.zeros(MAX_CLASSES, dtype=np.int64), np.zeros(MAX_CLASSES, dtype=np.int64)
    for c in range(num_thresholds + 1):
        left[c], kinds[c] = next_gap(symbols, ends, places, low, low_places, shifts, c)
        if left[c] == -2:
            return OUT_OF_SYMBOLS
    for start in range(0, num_words, CHUNK):
        words, place, within = old, start, ALL
        if start + CHUNK > num_words:
            words, place = padded(old, start), 0
            within = ~(ALL << U64(num_words - start))
        before = NONE
        for c in range(num_thresholds + 1):
            until = below(words, place, thresholds[c]) & within if c < num_thresholds else within
            members = until & ~before
            before = until
            if left[c] < 0:
                continue
            num_members, passed = np.int64(population(members)), 0
            while left[c] < num_members:
                while passed < left[c]:
                    members &= members - ONE
                    passed += 1
                i = np.int64(lowest(members))
                value, kind = words[place + i], kinds[c]
                if kind == WIDE:
                    coded = wide[wide_places[c]]
                    wide_places[c] += 1
                    value += (coded >> np.uint16(1)) ^ (~(coded & np.uint16(1)) + np.uint16(1))
                else:
                    size = (kind >> 1) + 1
                    value += np.uint16(-size if kind & 1 else size)
                positions[found] = start + i
                values[found] = value
                found += 1
                gap, kinds[c] = next_gap(symbols, ends, places, low, low_places, shifts, c)
                if gap == -2:
                    return OUT_OF_SYMBOLS
                if gap == -1:
                    left[c] = -1
                    break
                left[c] += 1 + gap
            if left[c] >= 0:
                left[c] -= num_members
    for c in range(num_thresholds + 1):
        if left[c] >= 0:
            return OUT_OF_SYMBOLS
    return found
