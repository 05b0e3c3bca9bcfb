"""Limits of means: of compared values in proof chunks, of log-probs over tokens.

reject = 1.5 · base, slash = 2.5 · base, base: the mean of the worst pairing. burst: the tail of what one
rollout deviates, summed over its observations, at target / rollouts a submission. Rollouts of a prompt
have much in common, so for a whole submission their sums are what is independent: with variance v per
observation and a tail of scale b, the mean of n strays beyond bL/n + √((bL/n)² + 2vL/n) with
probability e^−L (Bernstein). spread: √(2vL), or more if the limit for a submission asks for it

In: honest `Samples` of all sizes. Out: a `Limit`, and where it comes from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from protocol.rules import Limit
from verifier.calibration.floors import FLOORS, NEVER_SLASHED, REJECT_RATE, at_least, short
from verifier.calibration.samples import Samples
from verifier.calibration.tails import MIN_SAMPLES, Floats, Tail, fit_far, fit_tail

REJECT_FACTOR, SLASH_FACTOR = 1.5, 2.5
"""Of the worst mean: room for engines, kernels and machines that weren't measured."""
UNITS = {"toploc_exp_mismatch_share": "num_chunks", "toploc_mantissa_mean": "num_chunks"}
"""What a statistic is a mean over; the others are over tokens."""


def mean_limit(samples: Samples, name: str, group_size: int) -> tuple[Limit, dict[str, Any]]:
    """Of a mean over chunks or tokens, and where it comes from."""
    unit = UNITS.get(name, "num_tokens")
    alone, num_rollouts = samples.of_size(1), samples.sizes[-1]
    means = [_mean(alone.of_pairing(place), name, unit) for place in range(len(samples.pairings))]
    worst = int(np.argmax(means))
    levels = {size: _level(samples.of_size(size), name, unit, means) for size in samples.sizes}
    variance = max(level["variance"] for level in levels.values())
    tail, group_tail = (_worst_tail(samples.of_size(s), name, unit, means) for s in (1, _near(group_size, levels)))
    count, burst = levels[num_rollouts]["num_observations"], max(0.0, tail.beyond(REJECT_RATE / num_rollouts))
    reach = _bernstein(variance, group_tail.scale, count, REJECT_RATE) - (REJECT_FACTOR - 1) * means[worst]
    spread = max(math.sqrt(-2 * variance * math.log(REJECT_RATE)), (reach - burst / count) * math.sqrt(count))
    limit = at_least(
        FLOORS[name],
        reject=REJECT_FACTOR * means[worst],
        slash=None if name in NEVER_SLASHED else SLASH_FACTOR * means[worst],
        spread=spread,
        burst=burst,
    )
    document = {
        "rule": "means",
        "observations": unit,
        "worst_pairing": list(samples.pairings[worst]),
        "worst_mean": short(means[worst]),
        "rollout_tail": tail.as_document(),
        "group_tail": group_tail.as_document(),
        "sizes": list(levels.values()),
    }
    return limit, document


def _level(part: Samples, name: str, unit: str, means: Sequence[float]) -> dict[str, Any]:
    """Samples of one size: variance per observation, and what the farthest is at."""
    sums, counts = _sums(part, name, unit, means), part.column(unit)
    return {
        "num_rollouts": part.sizes[0],
        "num_samples": len(part),
        "num_observations": short(float(counts.mean())),
        "highest": short(float(part.column(name).max())),
        "variance": float(f"{(sums**2).sum() / counts.sum():.4g}"),
    }


def _sums(part: Samples, name: str, unit: str, means: Sequence[float]) -> Floats:
    """[S]: each sample's deviation from its pairing's mean, summed over its observations."""
    sums: Floats = (part.column(name) - np.array(means)[part.places]) * part.column(unit)
    # Each pairing's own mean is taken from its samples: what is left of few of them varies too little.
    sums *= math.sqrt(len(part) / max(1, len(part) - len(set(part.places.tolist()))))
    return sums


def _worst_tail(part: Samples, name: str, unit: str, means: Sequence[float]) -> Tail:
    """The widest of sums: of all pairings together, rare ones too, or of one that has enough samples."""
    sums = _sums(part, name, unit, means)
    each = [sums[part.places == place] for place in range(len(part.pairings))]
    tails = [fit_tail(found, least=0.0) for found in each if len(found) >= MIN_SAMPLES]
    return max([fit_far(sums, REJECT_RATE, least=0.0), *tails], key=lambda tail: tail.scale)


def _bernstein(variance: float, scale: float, count: float, probability: float) -> float:
    """How far a mean of `count` strays with this probability."""
    nats = -math.log(probability)
    linear = scale * nats / count
    return linear + math.sqrt(linear**2 + 2 * variance * nats / count)


def _near(group_size: int, sizes: Iterable[int]) -> int:
    """The largest size of sample that is no more than a group."""
    return max(size for size in sizes if size <= group_size)


def _mean(part: Samples, name: str, unit: str) -> float:
    """Pooled over all of the part's observations."""
    weights = part.column(unit)
    return float((part.column(name) * weights).sum() / weights.sum())
