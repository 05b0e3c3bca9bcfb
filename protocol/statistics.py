"""Exact tails of counts: how often honest noise alone would give so many.

In: a number of trials, each one's chance, a count. Out: P[Binomial ≥ count], and the least count whose tail is
below a false-positive rate. Sums of the probability mass in float64, to a relative 1e-8 up to 10^7 trials.

Example: `least_count(1800, 1e-5, 1e-6) == 3`: three flips in 1,800 tokens, at one in 10^5, are beyond one in 10^6.
"""

from __future__ import annotations

import math

NEGLIGIBLE = 1e-17


def binomial_tail(num_trials: int, rate: float, count: int) -> float:
    """P[Binomial(num_trials, rate) ≥ count]; `rate` within 0 to 1."""
    if count <= 0:
        return 1.0
    if count > num_trials or rate <= 0:
        return 0.0
    if rate >= 1:
        return 1.0
    if count > num_trials * rate:
        return _summed(num_trials, rate, count, upwards=True)
    return 1.0 - _summed(num_trials, rate, count - 1, upwards=False)


def least_count(num_trials: int, rate: float, false_positive_rate: float) -> int:
    """The least count whose tail is below the rate; `num_trials` + 1, which none reaches, where there is no such."""
    low, high = 0, num_trials + 1
    while low < high:
        middle = (low + high) // 2
        if binomial_tail(num_trials, rate, middle) < false_positive_rate:
            high = middle
        else:
            low = middle + 1
    return low


def binary_entropy(share: float) -> float:
    """Bits of a choice that falls one way with this probability: 0 at 0 and 1, 1 at a half."""
    if not 0 < share < 1:
        return 0.0
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)


def _summed(num_trials: int, rate: float, count: int, *, upwards: bool) -> float:
    """The mass at `count` and beyond it, away from the mean, where each next term is smaller."""
    term = _mass(num_trials, rate, count)
    total, odds = 0.0, rate / (1 - rate)
    while term > NEGLIGIBLE * total:
        total += term
        if upwards:
            term *= (num_trials - count) / (count + 1) * odds
            count += 1
        else:
            term *= count / (num_trials - count + 1) / odds
            count -= 1
    return min(1.0, total)


def _mass(num_trials: int, rate: float, count: int) -> float:
    """P[Binomial = count]."""
    ways = math.lgamma(num_trials + 1) - math.lgamma(count + 1) - math.lgamma(num_trials - count + 1)
    return math.exp(ways + count * math.log(rate) + (num_trials - count) * math.log1p(-rate))
