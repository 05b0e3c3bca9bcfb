"""Small-sample statistics over seeds: means with standard errors, and differences paired by seed.

In: a value a seed. Out: `Mean`, `Difference`. Student's t by its substitution t = √ν·tan θ, under which the two-sided
p-value is ∫ cos^(ν−1) over θ…π/2, divided by the same over 0…π/2.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

NUM_POINTS = 20_001
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Mean:
    """Over seeds. `error` is the standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class Difference:
    """Mean difference of pairs, its confidence interval, and the paired t-test against 0."""

    value: float
    low: float
    high: float
    p: float
    num_pairs: int


def mean_of(values: Sequence[float]) -> Mean:
    """Raises StatisticsError for fewer than two."""
    return Mean(statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)))


def difference(values: Sequence[float], against: Sequence[float]) -> Difference:
    """values − against, pair by pair. Raises StatisticsError for fewer than two pairs."""
    found = mean_of([a - b for a, b in zip(values, against, strict=True)])
    freedom = len(values) - 1
    reach = t_quantile(CONFIDENCE, freedom) * found.error
    t = abs(found.value) / found.error if found.error else (math.inf if found.value else 0.0)
    return Difference(found.value, found.value - reach, found.value + reach, t_test(t, freedom), len(values))


def t_test(t: float, freedom: int) -> float:
    """Two-sided p-value of |t| ≥ 0 with `freedom` ≥ 1 degrees of freedom."""
    return _tail(math.atan(t / math.sqrt(freedom)), freedom) / _tail(0.0, freedom)


@cache
def t_quantile(confidence: float, freedom: int) -> float:
    """The t whose two-sided p-value is 1 − confidence, by bisection of its angle."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        above = _tail(middle, freedom) / _tail(0.0, freedom) > 1 - confidence
        low, high = (middle, high) if above else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def height(places: Sequence[float], values: Sequence[float], start: float, end: float) -> float:
    """Mean height of the curve between two places, by trapezoids. Raises ValueError where it doesn't reach so far."""
    if not places[0] <= start < end <= places[-1]:
        raise ValueError(f"{start} to {end} lies outside {places[0]} to {places[-1]}")
    inner = [start, *(place for place in places if start < place < end), end]
    return float(np.trapezoid([at(places, values, place) for place in inner], inner)) / (end - start)


def at(places: Sequence[float], values: Sequence[float], place: float) -> float:
    """Height of the curve at a place, on the line between its neighbours."""
    return float(np.interp(place, places, values))


def _tail(angle: float, freedom: int) -> float:
    angles = np.linspace(angle, math.pi / 2, NUM_POINTS)
    return float(np.trapezoid(np.cos(angles) ** (freedom - 1), angles))
