"""The compiled scan of rows of logits: which token wins, what the claimed one is worth, and the sums behind both.

A row is gone through in three passes, and no logarithm is taken for nearly all tokens:

    weights   w = exp((logit − top) / temperature), its sums, in float64 to 1e-14
    cut       only with top_k or top_p: the last kept token, found by bisection, without sorting
    race      token = argmin of E / w with E = −log u, and E ≥ 1 − u: a token whose (1 − u) / w is above the second
              best E / w so far can't be among the first two. Of 49,152 tokens about 30 are looked at exactly.

Rows that rounding could decide otherwise than in `protocol/sampling.py` are handed back (`UNSETTLED`): two noised
logits that agree to 1e-11, or a top_p boundary within the error of a sum.

In: logits float32 [N, V] in C order, keys uint64 [N]. Out: what `protocol/sampling_scan.py` makes a `RowScan` of, the
only caller.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.kernel_arithmetic import (
    LEAST_EXPONENT_64,
    U64,
    bits_32,
    exp_64,
    float_32,
    float_64,
    fused,
    summing,
)
from protocol.kernels import helper, kernel
from protocol.sampling import LAST_SHIFT, MIX, STEP, UNIFORM_SCALE, UNIFORM_SHIFT

SETTLED, UNSETTLED, NOT_FINITE = 0, 1, 2
"""What became of a row; log-probs of a NOT_FINITE one don't exist."""
IDS = DRAWN, RUNNER_UP, CLAIMED_KEPT = 0, 1, 2
SUMS = TOP, WEIGHT, WEIGHTED_LOGIT, TINY_WEIGHT, EOS_WEIGHT = 0, 1, 2, 3, 4

ALL_KEPT, UNKNOWN = -1, -2
FIRST_BLOCK, BLOCK = 32, 256
MAX_SORTED = 256
MAX_EVEN_STEPS, MAX_STEPS = 16, 64
TIE = 1e-11
EPSILON = float(np.finfo(np.float64).eps)

STEP_WORD = U64(STEP)
SHIFT_1, FACTOR_1 = U64(MIX[0][0]), U64(MIX[0][1])
SHIFT_2, FACTOR_2 = U64(MIX[1][0]), U64(MIX[1][1])
SHIFT_3, SHIFT_U = U64(LAST_SHIFT), U64(UNIFORM_SHIFT)
HALF_STEP = UNIFORM_SCALE / 2
ONE_BITS = U64(0x3FF0000000000000)
LEAST_LOGIT = np.finfo(np.float32).min
NO, YES, PLUS_ZERO = np.float32(0.0), np.float32(1.0), np.float32(0.0)
KEY_MASK = np.int32(0x7FFFFFFF)
LARGEST_KEY, SMALLEST_KEY = np.int32(0x7F7FFFFF), np.int32(-0x7F800001)
"""The order keys of the largest finite float32 and of −inf; NaN of either sign lies beyond."""

Floats = npt.NDArray[np.float64]
Logits = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

Int = int | np.signedinteger[Any]
Rule = tuple[float, int, float]
"""temperature, top_k, top_p"""
Ends = tuple[np.float32, np.float32]
Needed = tuple[Int, float]


@helper
def order_key(bits: np.int32) -> np.int32:
    """Integers in the order of the floats that have these bits."""
    return np.int32(bits ^ ((bits >> 31) & KEY_MASK))


@helper
def from_order_key(key: Int) -> np.float32:
    level: np.float32 = float_32(order_key(np.int32(key)))
    return level


@helper
def order_range(bits: npt.NDArray[np.int32]) -> tuple[Int, Int]:
    """Least and largest order key."""
    least, largest = np.int32(0x7FFFFFFF), np.int32(-0x80000000)
    for i in range(bits.shape[0]):
        key = order_key(bits[i])
        least, largest = min(least, key), max(largest, key)
    return least, largest


@fused
def fill_weights(row: Logits, top: float, rate: float, w: Floats) -> None:
    """exp((logit − top) · rate)."""
    for i in range(row.shape[0]):
        x: float = (np.float64(row[i]) - top) * rate
        weight = exp_64(x)
        w[i] = weight if x > LEAST_EXPONENT_64 else 0.0  # noise bridges 40.5 nats at most


@summing
def weight_sums(row: Logits, top: float, rate: float, w: Floats) -> tuple[float, float]:
    """Σ w and Σ w · (logit − top) · rate."""
    total = weighted = 0.0
    for i in range(row.shape[0]):
        x = (np.float64(row[i]) - top) * rate
        total += w[i]
        weighted += w[i] * (x if x > LEAST_EXPONENT_64 else LEAST_EXPONENT_64)
    return total, weighted


@summing
def weight_below(w: Floats, bound: float) -> float:
    total = 0.0
    for i in range(w.shape[0]):
        total += w[i] if w[i] < bound else 0.0
    return total


@summing
def above(row: Logits, w: Floats, level: np.float32) -> tuple[Int, float]:
    """How many logits lie above a level, and their weight."""
    count, total = NO, 0.0  # counted in floats of the logits' own width: exact up to 2^24
    for i in range(row.shape[0]):
        count += YES if row[i] > level else NO
    for i in range(row.shape[0]):
        total += w[i] if row[i] > level else 0.0
    return np.int64(count), total


@helper
def middle(low: np.float32, high: np.float32, step: int) -> np.float32:
    """A level between two: their mean at first, then the middle one of the floats between them."""
    if step < MAX_EVEN_STEPS:
        return np.float32(0.5 * (np.float64(low) + np.float64(high)))
    return from_order_key((np.int64(order_key(bits_32(low))) + order_key(bits_32(high))) >> 1)


@helper
def narrowed(row: Logits, w: Floats, ends: Ends, needed: Needed, num_left: int) -> tuple[Ends, Int, float]:
    """Levels low < high around the last kept logit, with `num_left` logits in (low, high] at most, or equal ones only.

    What lies above `low` has the needed number of tokens or the needed weight, what lies above `high` has neither:
    its count and weight are returned too.
    """
    low, high = ends
    num_low, _ = above(row, w, low)
    num_high, weight_high = above(row, w, high)
    for step in range(MAX_STEPS):
        level = middle(low, high, step)
        if num_low - num_high <= num_left or not low < level < high:
            break
        num, weight = above(row, w, level)
        if num >= needed[0] or weight >= needed[1]:
            low, num_low = level, num
        else:
            high, num_high, weight_high = level, num, weight
    return (low, high), num_high, weight_high


@helper
def members(row: Logits, ends: Ends) -> Ints:
    """Ids of the logits in (low, high], in their order."""
    low, high = ends
    num_words = (row.shape[0] + 7) // 8
    is_inside = np.zeros(8 * num_words, dtype=np.uint8)
    for i in range(row.shape[0]):
        is_inside[i] = (row[i] > low) & (row[i] <= high)
    words = is_inside.view(np.uint64)  # most are 0: eight logits outside
    ids = np.empty(8 * num_words, dtype=np.int64)
    count = U64(0)
    for word in range(num_words):
        if words[word] != 0:
            for i in range(8 * word, 8 * word + 8):
                ids[count] = i
                count += is_inside[U64(i)]
    return ids[:count]


@helper
def by_rank(row: Logits, ids: Ints) -> Ints:
    """Highest logit first, equal ones by id. Many ids have equal logits, and are in order already."""
    if ids.shape[0] > MAX_SORTED:
        return ids
    keys = np.empty_like(ids)
    for j in range(ids.shape[0]):
        rank = ~np.int64(order_key(bits_32(row[ids[j]] + PLUS_ZERO)))  # −0 is equal to 0
        keys[j] = (rank << 32) | ids[j]
    keys.sort()
    return keys & 0xFFFFFFFF


@helper
def around_cut(row: Logits, w: Floats, ends: Ends, needed: Needed) -> tuple[Ints, Int, float]:
    """A few tokens by rank, the last kept one among them; number and weight of the tokens before them."""
    ends, num_before, weight_before = narrowed(row, w, ends, needed, max(MAX_SORTED, row.shape[0] // 16))
    ids = members(row, ends)
    if ids.shape[0] > MAX_SORTED:  # the rest of the search looks at these only
        few, few_w = row[ids], w[ids]
        left = (needed[0] - num_before, needed[1] - weight_before)
        ends, num_more, weight_more = narrowed(few, few_w, ends, left, MAX_SORTED)
        ids = ids[members(few, ends)]
        num_before, weight_before = num_before + num_more, weight_before + weight_more
    return by_rank(row, ids), num_before, weight_before


@helper
def top_k_cut(row: Logits, w: Floats, temperature: float, ends: Ends, top_k: int) -> tuple[Int, float]:
    """The last of the first `top_k` tokens, and the weight of all of these; or UNKNOWN where levels can't part them.

    `ends` are the least and the largest logit.
    """
    least, top = ends
    low = np.float32(top - 64.0 * temperature)
    if above(row, w, low)[0] < top_k:
        low = max(np.float32(least - 1.0 - abs(least)), LEAST_LOGIT)
        if above(row, w, low)[0] < top_k:
            return UNKNOWN, 0.0
    ids, num_before, weight = around_cut(row, w, (low, top), (top_k, np.inf))
    num_more = top_k - num_before
    if not 0 < num_more <= ids.shape[0]:
        return UNKNOWN, 0.0
    for j in range(num_more):
        weight += w[ids[j]]
    return ids[num_more - 1], weight


@helper
def top_p_cut(
    row: Logits, w: Floats, temperature: float, top: np.float32, total: float, top_p: float, error: float
) -> int:
    """The last token whose predecessors weigh less than `top_p · total`; UNKNOWN where a sum's error could decide.

    V tokens of w <= (1 − top_p) · total / V weigh (1 − top_p) · total together at most, so none of them is kept.
    `total` may be that of the first tokens only: the search ends among them.
    """
    needed, unsure = top_p * total, error * total
    low = np.float32(top + temperature * (math.log((1.0 - top_p) * total / row.shape[0]) - 1e-3))
    if not low < top or above(row, w, low)[1] < needed:
        return UNKNOWN
    ids, _, before = around_cut(row, w, (low, top), (row.shape[0] + 1, needed))
    num_kept = 0
    while num_kept < ids.shape[0] and before < needed - unsure:
        before += w[ids[num_kept]]
        num_kept += 1
    return ids[num_kept - 1] if num_kept > 0 and before > needed + unsure else UNKNOWN


@helper
def last_kept(row: Logits, w: Floats, rule: Rule, ends: Ends, total: float, error: float) -> Int:
    """The id of the last token in rank that top_k and top_p keep, or one of ALL_KEPT and UNKNOWN."""
    temperature, top_k, top_p = rule
    last: Int = ALL_KEPT
    if 0 < top_k < row.shape[0]:
        last, total = top_k_cut(row, w, temperature, ends, top_k)
    if top_p < 1.0 and last != UNKNOWN:
        last = top_p_cut(row, w, temperature, ends[1], total, top_p, error)
    return last


@helper
def is_kept(row: Logits, token: int, last: Int) -> bool | np.bool_:
    return last == ALL_KEPT or row[token] > row[last] or (row[token] == row[last] and token <= last)


@helper
def near_ones(start: np.uint64, steps: Words, w: Floats, bound: float, short_of_one: Floats) -> int:
    """1 − u of consecutive tokens, exactly; how many of them have 1 − u <= bound · w."""
    num_hits = 0
    for i in range(w.shape[0]):
        z = start + steps[i]
        z = (z ^ (z >> SHIFT_1)) * FACTOR_1
        z = (z ^ (z >> SHIFT_2)) * FACTOR_2
        z = z ^ (z >> SHIFT_3)
        short = 2.0 - float_64((z >> SHIFT_U) | ONE_BITS) - HALF_STEP
        short_of_one[i] = short
        num_hits += short <= bound * w[i]
    return num_hits


@helper
def race(
    row: Logits, w: Floats, key: np.uint64, temperature: float, last: Int, slack: float, space: Floats
) -> tuple[Int, Int, bool | np.bool_]:
    """The ids of the best and the second best noised logit (−1 where there is none), and whether they are apart."""
    best = second = np.int64(-1)
    noised_best = noised_second = -np.inf
    ratio_best = ratio_second = bound = np.inf
    steps = np.arange(1, space.shape[0] + 1).astype(np.uint64) * STEP_WORD
    start, size = 0, FIRST_BLOCK
    while start < row.shape[0]:
        stop = min(start + size, row.shape[0])
        if near_ones(key + U64(start) * STEP_WORD, steps, w[start:stop], bound, space) > 0:
            for i in range(start, stop):
                if not space[i - start] <= bound * w[i] or not is_kept(row, i, last):
                    continue
                wait = -math.log(1.0 - space[i - start])
                noised, ratio = np.float64(row[i]) / temperature - math.log(wait), wait / w[i]
                if noised > noised_best:
                    second, noised_second, ratio_second = best, noised_best, ratio_best
                    best, noised_best, ratio_best = np.int64(i), noised, ratio
                elif noised > noised_second:
                    second, noised_second, ratio_second = np.int64(i), noised, ratio
                bound = ratio_second * (1.0 + slack)
        start, size = stop, min(2 * size, BLOCK)
    tie = TIE + 8.0 * EPSILON * abs(noised_best)
    return best, second, second < 0 or noised_best - noised_second > tie


@helper
def eos_weight(w: Floats, eos_ids: Ints) -> float:
    total = 0.0
    for token in eos_ids:
        total += w[token]
    return total


@helper
def scan_row(
    row: Logits, key: np.uint64, claimed: int, rule: Rule, eos_ids: Ints, tiny: float,
    w: Floats, space: Floats, ids: Ints, sums: Floats,
) -> int:  # fmt: skip
    """One row into `ids` and `sums`; what became of it."""
    temperature = rule[0]
    least_key, top_key = order_range(row.view(np.int32))
    if least_key < SMALLEST_KEY or top_key > LARGEST_KEY or top_key <= SMALLEST_KEY:
        return NOT_FINITE
    top, least = from_order_key(top_key), from_order_key(least_key)
    rate = 1.0 / temperature
    sums[TOP] = np.float64(top) / temperature
    fill_weights(row, np.float64(top), rate, w)
    sums[WEIGHT], sums[WEIGHTED_LOGIT] = weight_sums(row, np.float64(top), rate, w)
    sums[TINY_WEIGHT] = weight_below(w, tiny * sums[WEIGHT]) if tiny > 0.0 else 0.0
    sums[EOS_WEIGHT] = eos_weight(w, eos_ids)
    error = EPSILON * (row.shape[0] + 64 + 8.0 * abs(top / temperature))
    if not error < 1e-6:
        return UNSETTLED
    last = last_kept(row, w, rule, (least, top), sums[WEIGHT], error)
    if last == UNKNOWN:
        return UNSETTLED
    ids[CLAIMED_KEPT] = claimed >= 0 and is_kept(row, claimed, last)
    ids[DRAWN], ids[RUNNER_UP], is_apart = race(row, w, key, temperature, last, 1e-9 + error, space)
    return SETTLED if is_apart and ids[DRAWN] >= 0 else UNSETTLED


@kernel(
    "void(float32[:,::1], uint64[::1], int64[::1], Tuple((float64, int64, float64)), int64[::1], float64,"
    " int64[:,::1], float64[:,::1], int64[::1])"
)
def scan(
    logits: Logits, keys: Words, claimed: Ints, rule: Rule, eos_ids: Ints, tiny: float,
    ids: Ints, sums: Floats, status: Ints,
) -> None:  # fmt: skip
    """Every row: `ids` int64 [N, 3], `sums` float64 [N, 5] and `status` int64 [N] are filled in."""
    w, space = np.empty(logits.shape[1]), np.empty(max(FIRST_BLOCK, BLOCK))
    for n in range(logits.shape[0]):
        status[n] = scan_row(logits[n], keys[n], claimed[n], rule, eos_ids, tiny, w, space, ids[n], sums[n])
