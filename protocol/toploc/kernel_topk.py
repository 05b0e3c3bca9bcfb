"""Compiled choice of the k largest magnitudes, by both tie rules.

In: flat uint16 patterns, cut into chunks of `chunk_values`, the last one shorter. Out: indices [C, k] within
each chunk. The same sets as topk.py and torch_ties.py give; imported by fast.py alone.

lowest: the maximum of each block of 64 in one vectorised pass; the k-th largest of the maxima bounds the k-th
magnitude from below, so that only blocks which reach it are looked at again, and some k values are ranked.
torch-cpu: what libstdc++ does, step by step: a heap where 64 k <= N (blocks that can't enter it are skipped),
nth_element below that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.kernels import helper, kernel

Bits = npt.NDArray[np.uint16]
Ints = npt.NDArray[np.int64]

_BLOCK = 64
_MIN_BLOCKS = 1.5
"""Times k: with fewer blocks too many of them hold one of the k largest."""
_PARTIAL_SORT = 64
_SHIFT = 40
"""An entry is a magnitude, shifted by this, and its index."""
_EXPONENTS, _MANTISSAS, _MANTISSA_BITS = 256, 128, 7
_SMALL = 3


@helper
def _magnitude(pattern: int, infinity: int) -> int:
    """|v| as an integer that orders like it, every NaN just above infinity."""
    return min(pattern & 0x7FFF, infinity + 1)


@helper
def _entry(values: Bits, i: int, infinity: int) -> int:
    return (_magnitude(values[i], infinity) << _SHIFT) | i


@helper
def _key(entry: int) -> int:
    return entry >> _SHIFT


@helper
def _index(entry: int) -> int:
    return entry & ((1 << _SHIFT) - 1)


@helper
def _block_maxima(values: Bits, maxima: Bits) -> None:
    """Largest magnitude of each whole block, NaN patterns as they are."""
    sign = np.uint16(0x7FFF)
    for block in range(len(values) // _BLOCK):
        of_block = values[block * _BLOCK : (block + 1) * _BLOCK]
        largest = np.uint16(0)
        for i in range(_BLOCK):
            magnitude = np.uint16(of_block[i] & sign)
            largest = magnitude if magnitude > largest else largest
        maxima[block] = largest


@helper
def _lowest(values: Bits, infinity: int, maxima: Bits, entries: Ints, out: Ints) -> None:
    k, num_blocks = len(out), len(values) // _BLOCK
    count = 0
    start = 0
    if num_blocks >= _MIN_BLOCKS * k:
        _block_maxima(values, maxima)
        for block in range(num_blocks):
            entries[block] = _magnitude(maxima[block], infinity) << _SHIFT
        floor = _kth_largest(entries[:num_blocks], k)
        for block in range(num_blocks):
            if maxima[block] >= floor:
                count = _gather(values, block * _BLOCK, block * _BLOCK + _BLOCK, floor, infinity, entries, count)
        start = num_blocks * _BLOCK
        count = _gather(values, start, len(values), floor, infinity, entries, count)
    else:
        count = _gather(values, 0, len(values), 0, infinity, entries, 0)
    _take_lowest(entries[:count], out)


@helper
def _gather(values: Bits, start: int, stop: int, floor: int, infinity: int, entries: Ints, count: int) -> int:
    """Append the values from `start` to `stop` that reach `floor`; how many entries there are then."""
    for i in range(start, stop):
        magnitude = _magnitude(values[i], infinity)
        # Written always, and kept by counting it: a branch here would be guessed wrongly too often.
        entries[count] = (magnitude << _SHIFT) | i
        count += magnitude >= floor
    return count


@helper
def _kth_largest(entries: Ints, k: int) -> int:
    """The k-th largest magnitude among the entries: first its exponent, then its mantissa."""
    exponents = np.zeros(_EXPONENTS, dtype=np.int64)
    for entry in entries:
        exponents[entry >> (_SHIFT + _MANTISSA_BITS)] += 1
    rank, exponent = k, _EXPONENTS - 1
    while exponents[exponent] < rank:
        rank -= exponents[exponent]
        exponent -= 1
    mantissas = np.zeros(_MANTISSAS, dtype=np.int64)
    for entry in entries:
        key = _key(entry)
        if key >> _MANTISSA_BITS == exponent:
            mantissas[key & (_MANTISSAS - 1)] += 1
    mantissa = _MANTISSAS - 1
    while mantissas[mantissa] < rank:
        rank -= mantissas[mantissa]
        mantissa -= 1
    return (exponent << _MANTISSA_BITS) | mantissa


@helper
def _take_lowest(entries: Ints, out: Ints) -> None:
    """The indices of the k largest; entries come in order of their index."""
    k = len(out)
    smallest = _kth_largest(entries, k)
    num_ties = k
    for entry in entries:
        num_ties -= _key(entry) > smallest
    place = 0
    for entry in entries:
        key = _key(entry)
        if key > smallest or (key == smallest and num_ties > 0):
            num_ties -= key == smallest
            out[place] = _index(entry)
            place += 1


@helper
def _as_torch(values: Bits, infinity: int, maxima: Bits, entries: Ints, out: Ints) -> None:
    k = len(out)
    if _PARTIAL_SORT * k <= len(values):
        _heap_select(values, infinity, maxima, entries[:k])
    else:
        for i in range(len(values)):
            entries[i] = _entry(values, i, infinity)
        _nth_element(entries[: len(values)], k - 1)
    for i in range(k):
        out[i] = _index(entries[i])


@helper
def _heap_select(values: Bits, infinity: int, maxima: Bits, heap: Ints) -> None:
    """The first k entries as a heap, smallest on top; then each later one that is larger replaces the top."""
    k, num_blocks = len(heap), len(values) // _BLOCK
    _block_maxima(values, maxima)
    for i in range(k):
        heap[i] = _entry(values, i, infinity)
    for hole in range((k - 2) // 2, -1, -1):
        _sift(heap, hole, heap[hole])
    first_block = -(-k // _BLOCK)
    _push_larger(values, k, min(first_block * _BLOCK, len(values)), infinity, heap)
    for block in range(first_block, num_blocks):
        if maxima[block] > _key(heap[0]):
            _push_larger(values, block * _BLOCK, block * _BLOCK + _BLOCK, infinity, heap)
    _push_larger(values, max(num_blocks, first_block) * _BLOCK, len(values), infinity, heap)


@helper
def _push_larger(values: Bits, start: int, stop: int, infinity: int, heap: Ints) -> None:
    smallest = _key(heap[0])
    for i in range(start, stop):
        magnitude = _magnitude(values[i], infinity)
        if magnitude > smallest:
            _sift(heap, 0, (magnitude << _SHIFT) | i)
            smallest = _key(heap[0])


@helper
def _sift(heap: Ints, top: int, entry: int) -> None:
    """libstdc++'s __adjust_heap: a hole sinks from `top` to the bottom, then `entry` rises from there."""
    length, hole, child = len(heap), top, top
    while child < (length - 1) // 2:
        child = 2 * (child + 1)
        child -= _key(heap[child]) > _key(heap[child - 1])
        heap[hole] = heap[child]
        hole = child
    if length % 2 == 0 and child == (length - 2) // 2:
        child = 2 * child + 1
        heap[hole] = heap[child]
        hole = child
    while hole > top and _key(heap[(hole - 1) >> 1]) > _key(entry):
        heap[hole] = heap[(hole - 1) >> 1]
        hole = (hole - 1) >> 1
    heap[hole] = entry


@helper
def _nth_element(entries: Ints, nth: int) -> None:
    """libstdc++'s introselect, larger magnitudes first: the largest come to stand at 0 … nth."""
    first, last = 0, len(entries)
    depth, length = 0, len(entries)
    while length > 1:
        depth, length = depth + 2, length >> 1
    while last - first > _SMALL:
        if depth == 0:
            _heap_select_entries(entries[first:last], nth + 1 - first)
            return
        depth -= 1
        cut = _partition(entries, first, last)
        if cut <= nth:
            first = cut
        else:
            last = cut
    _insertion_sort(entries[first:last])


@helper
def _heap_select_entries(entries: Ints, k: int) -> None:
    heap = entries[:k]
    for hole in range((k - 2) // 2, -1, -1):
        _sift(heap, hole, heap[hole])
    for i in range(k, len(entries)):
        if _key(entries[i]) > _key(heap[0]):
            entry, entries[i] = entries[i], heap[0]
            _sift(heap, 0, entry)


@helper
def _partition(entries: Ints, first: int, last: int) -> int:
    """Move the median of three to `first` as the pivot and split the rest: where the second part begins."""
    _median_to_first(entries, first, first + 1, first + (last - first) // 2, last - 1)
    pivot, left, right = _key(entries[first]), first + 1, last
    while True:
        while _key(entries[left]) > pivot:
            left += 1
        right -= 1
        while pivot > _key(entries[right]):
            right -= 1
        if left >= right:
            return left
        entries[left], entries[right] = entries[right], entries[left]
        left += 1


@helper
def _median_to_first(entries: Ints, result: int, a: int, b: int, c: int) -> None:
    key_a, key_b, key_c = _key(entries[a]), _key(entries[b]), _key(entries[c])
    if key_a > key_b:
        median = b if key_b > key_c else (c if key_a > key_c else a)
    else:
        median = a if key_a > key_c else (c if key_b > key_c else b)
    entries[result], entries[median] = entries[median], entries[result]


@helper
def _insertion_sort(entries: Ints) -> None:
    for i in range(1, len(entries)):
        entry, place = entries[i], i
        while place > 0 and _key(entry) > _key(entries[place - 1]):
            entries[place] = entries[place - 1]
            place -= 1
        entries[place] = entry


@kernel("void(Array(uint16, 1, 'C', readonly=True), int64, int64, boolean, int64[:, ::1], uint16[:, ::1])")
def choose(flat: Bits, chunk_values: int, infinity: int, as_torch: bool, indices: Ints, chosen: Bits) -> None:
    """Fill `indices` and `chosen` [C, k]. Every chunk has to hold k values; NaN patterns are those above `infinity`."""
    k, longest = indices.shape[1], min(chunk_values, len(flat))
    entries = np.empty(longest, dtype=np.int64)
    maxima = np.empty(longest // _BLOCK, dtype=np.uint16)
    for chunk in range(len(indices)):
        values = flat[chunk * chunk_values : (chunk + 1) * chunk_values]
        if as_torch:
            _as_torch(values, infinity, maxima, entries, indices[chunk])
        else:
            _lowest(values, infinity, maxima, entries, indices[chunk])
        for i in range(k):
            chosen[chunk, i] = values[indices[chunk, i]]
