"""Shares with their 95 % intervals.

In: trials and successes, or a function of a resampled set. Out: (share, low, high).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

Z = 1.959964


@dataclass(frozen=True)
class Share:
    """Example: `wilson(3, 64)`."""

    share: float | None
    """None of nothing."""
    low: float
    high: float


UNKNOWN = Share(None, 0.0, 1.0)
"""Of nothing."""


def wilson(count: int, total: int) -> Share:
    """Wilson's score interval of count / total."""
    if not total:
        return UNKNOWN
    p, scale = count / total, 1 + Z**2 / total
    middle = (p + Z**2 / (2 * total)) / scale
    half = Z / scale * math.sqrt(p * (1 - p) / total + Z**2 / (4 * total**2))
    return Share(p, middle - half if count else 0.0, middle + half if count < total else 1.0)


def share_of_sets(sets: Iterable[Sequence[bool]]) -> Share:
    """The mean over sets of how much of each holds, with the percentiles of the sets' own shares."""
    shares = [float(np.mean(one)) for one in sets]
    if not shares:
        return UNKNOWN
    low, high = np.percentile(shares, [2.5, 97.5])
    return Share(float(np.mean(shares)), float(low), float(high))


def resampled_files(is_altered: Sequence[bool], size: int, num_sets: int, num_files: int) -> Iterator[list[list[int]]]:
    """A two-level bootstrap: sets of rollouts drawn anew, for what other tries would have been, and files from each.

    Files are lists of `size` rollout numbers, drawn with replacement; those without an altered one are left out, unless
    none is altered at all.
    """
    source, altered = np.random.default_rng(0), np.array(is_altered)
    wanted = altered if altered.any() else np.ones_like(altered)
    for _ in range(num_sets):
        again = source.integers(len(altered), size=len(altered))
        files = again[source.integers(len(altered), size=(num_files, size))]
        lies = [file.tolist() for file in files if wanted[file].any()]
        if lies:
            yield lies
