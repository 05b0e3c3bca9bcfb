"""Shares with their 95 % intervals.

In: trials and successes, or a function of a resampled set. Out: (share, low, high).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Z = 1.959964
Item = TypeVar("Item")


@dataclass(frozen=True)
class Share:
    """Example: `wilson(3, 64)`."""

    share: float
    low: float
    high: float


def wilson(count: int, total: int) -> Share:
    """Wilson's score interval of count / total."""
    if not total:
        return Share(math.nan, 0.0, 1.0)
    p, scale = count / total, 1 + Z**2 / total
    middle = (p + Z**2 / (2 * total)) / scale
    half = Z / scale * math.sqrt(p * (1 - p) / total + Z**2 / (4 * total**2))
    return Share(p, max(0.0, middle - half), min(1.0, middle + half))


def resampled(
    items: Sequence[Item], holds: Callable[[list[Item]], bool], size: int, num_sets: int, num_draws: int
) -> Share:
    """How often `holds` is true of `size` items drawn with replacement, with a two-level bootstrap's percentiles.

    Each of `num_sets` sets is the items drawn anew, for what other tries would have been; from each, `num_draws` files.
    """
    source = np.random.default_rng(0)
    shares = []
    for _ in range(num_sets):
        again = source.integers(len(items), size=len(items))
        files = again[source.integers(len(items), size=(num_draws, size))]
        shares.append(np.mean([holds([items[i] for i in file]) for file in files]))
    low, high = np.percentile(shares, [2.5, 97.5])
    return Share(float(np.mean(shares)), float(low), float(high))
