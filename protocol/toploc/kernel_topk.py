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
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_BLOCK = 64
_WORD = 8
_MIN_BLOCKS = 1.5
"""Times k: with fewer blocks too many of them hold one of the k largest."""
_COLUMNS = 4
"""Times k."""
_LARGEST_PATTERN = 0x7FFF
_PARTIAL_SORT = 64
_SHIFT = 40
"""An entry is a magnitude, shifted by this, and its index."""
_EXPONENTS, _MANTISSAS, _MANTISSA_BITS = 256, 128, 7
_SMALL = 3
_QUEUE = 16
_LARGEST = np.iinfo(np.int64).max
_ALL_BITS, _MAGNITUDES = 63, -1 << _SHIFT
_ROOT, _ONE, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)
"""Places in a heap are unsigned: numba counts negative ones from the end, which costs two more operations a step."""


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
    sign = np.uint16(_LARGEST_PATTERN)
    for block in range(len(values) // _BLOCK):
        of_block = values[block * _BLOCK : (block + 1) * _BLOCK]
        largest = np.uint16(0)
        for i in range(_BLOCK):
            magnitude = np.uint16(of_block[i] & sign)
            largest = magnitude if magnitude > largest else largest
        maxima[block] = largest


@helper
def _gather(values: Bits, start: int, stop: int, floor: int, out: Ints, count: int) -> int:
    """Append the indices from `start` to `stop` of magnitudes that reach `floor`; how many there are then."""
    for i in range(start, stop):
        # Written always, and kept by counting it: a branch here would be guessed wrongly too often.
        out[count] = i
        count += (values[i] & 0x7FFF) >= floor
    return count


@helper
def _gather_block(values: Bits, block: int, floor: int, words: Words, hits: Bytes, out: Ints, count: int) -> int:
    """`_gather` of one block: all compared in a few vector operations, then only the words with a hit in.

    `hits` [64] are the bytes of `words` [8].
    """
    start, least, sign = block * _BLOCK, np.uint16(floor), np.uint16(_LARGEST_PATTERN)
    of_block = values[start : start + _BLOCK]
    for i in range(_BLOCK):
        hits[i] = np.uint16(of_block[i] & sign) >= least
    for word in range(_BLOCK // _WORD):
        if words[word]:
            for i in range(word * _WORD, word * _WORD + _WORD):
                out[count] = start + i
                count += hits[i]
    return count


@helper
def _lowest(values: Bits, infinity: int, maxima: Bits, out: Ints) -> None:
    k, num_blocks = len(out), len(values) // _BLOCK
    if num_blocks < _MIN_BLOCKS * k:
        maxima[:] = _LARGEST_PATTERN
        floor, num_reaching = _floor_of_few(values, infinity, k), num_blocks
    else:
        _block_maxima(values, maxima)
        floor, num_reaching = _kth_largest(_entries(maxima[:num_blocks], infinity), k), 0
        for block in range(num_blocks):
            num_reaching += maxima[block] >= floor
    words, entries = np.empty(_BLOCK // _WORD, dtype=np.uint64), np.empty((num_reaching + 1) * _BLOCK, dtype=np.int64)
    hits, count = words.view(np.uint8), 0
    for block in range(num_blocks):
        if maxima[block] >= floor:
            count = _gather_block(values, block, floor, words, hits, entries, count)
    count = _gather(values, num_blocks * _BLOCK, len(values), floor, entries, count)
    for i in range(count):
        entries[i] = _entry(values, entries[i], infinity)
    _take_lowest(entries[:count], out)


@helper
def _floor_of_few(values: Bits, infinity: int, k: int) -> int:
    """As the k-th largest maximum of blocks, for which there are too few: of columns, every so-many-th value."""
    num_rows = max(1, len(values) // (_COLUMNS * k))
    columns = np.zeros(len(values) // num_rows, dtype=np.uint16)
    for row in range(num_rows):
        of_row = values[row * len(columns) : (row + 1) * len(columns)]
        for i in range(len(columns)):
            magnitude = np.uint16(of_row[i] & np.uint16(_LARGEST_PATTERN))
            columns[i] = magnitude if magnitude > columns[i] else columns[i]
    return _kth_largest(_entries(columns, infinity), k)


@helper
def _entries(values: Bits, infinity: int) -> Ints:
    entries = np.empty(len(values), dtype=np.int64)
    for i in range(len(values)):
        entries[i] = _entry(values, i, infinity)
    return entries


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
def _as_torch(values: Bits, infinity: int, maxima: Bits, out: Ints) -> None:
    k = len(out)
    if _PARTIAL_SORT * k <= len(values):
        chosen = np.empty(2 * k + 1, dtype=np.int64)
        _heap_select(values, infinity, maxima, chosen, k)
    else:
        chosen = _entries(values, infinity)
        _nth_element(chosen, k - 1)
    for i in range(k):
        out[i] = _index(chosen[i])


@helper
def _heap_select(values: Bits, infinity: int, maxima: Bits, heap: Ints, k: int) -> None:
    """The first k entries as a heap, smallest on top; then each later one that is larger replaces the top.

    What may be larger waits in a queue, for two reasons: few branches are guessed wrongly, and one entry
    still sinks while the next begins to. Meanwhile the top only grows, so that none is missed.
    """
    num_blocks, first_block = len(values) // _BLOCK, -(-k // _BLOCK)
    heap[:] = _LARGEST
    for i in range(k):
        heap[i] = _entry(values, i, infinity)
    _order_heap(heap, k)
    _block_maxima(values, maxima)
    words, queue = np.empty(_BLOCK // _WORD, dtype=np.uint64), np.empty(_QUEUE + _BLOCK, dtype=np.int64)
    hits = words.view(np.uint8)
    count = _gather(values, k, min(first_block * _BLOCK, len(values)), 0, queue, 0)
    smallest = _push_all(values, infinity, queue[:count], heap, k)
    count = 0
    for block in range(first_block, num_blocks):
        if maxima[block] > smallest:
            count = _gather_block(values, block, smallest + 1, words, hits, queue, count)
            if count >= _QUEUE:
                smallest = _push_all(values, infinity, queue[:count], heap, k)
                count = 0
    smallest = _push_all(values, infinity, queue[:count], heap, k)
    start = max(num_blocks, first_block) * _BLOCK
    count = _gather(values, start, len(values), smallest + 1, queue, 0)
    _push_all(values, infinity, queue[:count], heap, k)


@helper
def _order_heap(heap: Ints, k: int) -> None:
    """libstdc++'s make_heap of the first k entries; behind them stand largest ones, as many and one more."""
    for hole in range((k - 2) // 2, -1, -1):
        _sink(heap, np.uint64(hole), heap[hole], k)


@helper
def _push_all(values: Bits, infinity: int, queue: Ints, heap: Ints, k: int) -> int:
    """The entry of each index in turn replaces the top if it is larger; the smallest magnitude then."""
    for i in queue:
        entry = _entry(values, i, infinity)
        if _key(entry) > _key(heap[0]):
            _sink(heap, _ROOT, entry, k)
    return _key(heap[0])


@helper
def _sink(heap: Ints, hole: np.uint64, entry: int, k: int) -> None:
    """Put `entry` into the hole of a heap of k, and let it sink past what isn't larger.

    libstdc++'s __adjust_heap sinks the hole to the bottom and lets the entry rise from there, which comes to
    the same: along that path magnitudes only grow. So each place on it gets what was below, if that isn't
    larger than the entry; else keeps what it has, if that is larger; else gets the entry. All steps are done,
    without a branch, as none could be foreseen; differences shifted to all ones or zeros stand for
    comparisons, which LLVM would turn back into branches.
    """
    larger, here, sank, num_parents = (_key(entry) + 1) << _SHIFT, entry, -1, np.uint64(k // 2)
    while hole < num_parents:
        right = np.uint64(hole * _TWO + _TWO)
        to_left = (heap[np.uint64(right - _ONE)] - (heap[right] & _MAGNITUDES)) >> _ALL_BITS
        child = np.uint64(right + np.uint64(to_left))
        below = heap[child]
        sinks = (below - larger) >> _ALL_BITS
        kept = here ^ ((here ^ entry) & sank)
        heap[hole] = kept ^ ((kept ^ below) & sinks)
        hole, here, sank = child, below, sinks
    heap[hole] = here ^ ((here ^ entry) & sank)


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
    """As `_heap_select`, in place: what leaves the heap takes the place of what came in."""
    heap = np.full(2 * k + 1, _LARGEST)
    heap[:k] = entries[:k]
    _order_heap(heap, k)
    for i in range(k, len(entries)):
        if _key(entries[i]) > _key(heap[0]):
            entry, entries[i] = entries[i], heap[0]
            _sink(heap, _ROOT, entry, k)
    entries[:k] = heap[:k]


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
    maxima = np.empty(longest // _BLOCK, dtype=np.uint16)
    for chunk in range(len(indices)):
        values = flat[chunk * chunk_values : (chunk + 1) * chunk_values]
        if as_torch:
            _as_torch(values, infinity, maxima, indices[chunk])
        else:
            _lowest(values, infinity, maxima, indices[chunk])
        for i in range(k):
            chosen[chunk, i] = values[indices[chunk, i]]
