"""Limits of flips: tokens that aren't the drawn one, among all, among near-ties, and by the side that they fall to.

    flips       rate = 1.5 · dispersion · the upper 99 % bound of the honest rate, worst pairing; where none was seen,
                how densely near-ties lie times how far log-probs differ. An exact binomial tail does the rest
    near-ties   the least of TIE_NATS that holds 95 % of the honest flips; the same bound of the rate among them
    sides       rate = 1.5 · ½, as rounding has no side; where flips lean beyond chance, of all or of one pairing, 1.5 ·
                the upper 99 % bound of the larger side's share

In: honest `Samples` of one rollout each. Out: rates, and where they come from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from protocol.rules import FlipTest
from protocol.statistics import binomial_tail
from verifier.calibration.floors import REJECT_RATE, SLASH_RATE, short, up
from verifier.calibration.observe import TIE_NATS
from verifier.calibration.samples import Samples
from verifier.calibration.tails import Floats

RATE_FACTOR = 1.5
FLIP_RATE_FLOOR = 1e-5
"""Two float32 logits that are 1e-5 apart in 1: about as often does the noise draw two tokens so near to each other."""
MIN_TIES = 20
"""So many near-ties tell how densely they lie."""
TIE_SHARE = 0.95
TIE_NATS_FLOOR = 1e-4
TIE_RATE_FLOOR, TIE_RATE_CEILING = 0.1, 0.9
SIDE_RATE_CEILING = 0.9
UNLIKE = 0.01
"""A pairing has a rate of its own where the common one would give so many flips this rarely, over all pairings."""
BOUND_Z = 2.326
"""One-sided 99 %."""


def flip_test(alone: Samples) -> tuple[FlipTest, dict[str, Any]]:
    """The rate of the exact test, from samples of one rollout."""
    bounds = list(_flip_bounds(alone)) or [expected_rate(alone)]
    dispersion = _dispersion(alone.column("num_flips"), alone.column("num_tokens"))
    rate = max(FLIP_RATE_FLOOR, RATE_FACTOR * max(1.0, dispersion) * max(bounds))
    document = {
        "rule": "flips",
        "num_flips": alone.total("num_flips"),
        "num_tokens": alone.total("num_tokens"),
        "bound": short(max(bounds)),
        "dispersion": short(dispersion),
    }
    return FlipTest(rate=up(min(0.5, rate)), reject=REJECT_RATE, slash=SLASH_RATE), document


def expected_rate(alone: Samples) -> float:
    """Where no flip was seen: how often two noised logits are as near as the largest error of a log-prob, twice."""
    reach = 2 * alone.column("logprob_error_max").max()
    ties = np.array([o.num_ties for o in alone.observations]).sum(axis=0)
    index = next((i for i, count in enumerate(ties) if count >= MIN_TIES), len(TIE_NATS) - 1)
    return float(reach * max(1, ties[index]) / TIE_NATS[index] / alone.total("num_tokens"))


def _flip_bounds(alone: Samples) -> Iterator[float]:
    """Upper bounds of the rate: of all together, and of each pairing that isn't like the others."""
    flips, tokens = alone.total("num_flips"), alone.total("num_tokens")
    if not flips:
        return
    yield upper_rate(flips, tokens)
    for place in range(len(alone.pairings)):
        part = alone.of_pairing(place)
        seen, total = part.total("num_flips"), part.total("num_tokens")
        if binomial_tail(total, flips / tokens, seen) < UNLIKE / len(alone.pairings):
            yield upper_rate(seen, total)


def side_rate(alone: Samples) -> tuple[float, dict[str, Any]]:
    """How many of the flips may go to one side."""
    parts = [alone, *(alone.of_pairing(place) for place in range(len(alone.pairings)))]
    counts = [(part.total("num_flips_up"), part.total("num_flips_down")) for part in parts]
    leaning = [
        upper_rate(max(sides), sum(sides))
        for sides in counts
        if binomial_tail(sum(sides), 0.5, max(sides)) < UNLIKE / len(parts) / 2
    ]
    share = max([0.5, *leaning])
    document = {"rule": "sides", "num_up": counts[0][0], "num_down": counts[0][1], "share": short(share)}
    return up(min(SIDE_RATE_CEILING, RATE_FACTOR * share)), document


def near_ties(alone: Samples) -> tuple[float, float, dict[str, Any]]:
    """How near a tie is near, and how many of these flip."""
    ties = np.array([o.num_ties for o in alone.observations]).sum(axis=0)
    flips = np.array([o.num_tie_flips for o in alone.observations]).sum(axis=0)
    wanted = TIE_SHARE * alone.total("num_flips")
    within = [i for i, nats in enumerate(TIE_NATS) if nats >= TIE_NATS_FLOOR]
    index = next((i for i in within if flips[i] >= wanted), within[-1])
    rate = RATE_FACTOR * upper_rate(int(flips[index]), max(1, int(ties[index])))
    rate = min(TIE_RATE_CEILING, max(TIE_RATE_FLOOR, rate))
    document = {
        "rule": "near-ties",
        "nats": list(TIE_NATS),
        "num_ties": ties.tolist(),
        "num_flips": flips.tolist(),
    }
    return TIE_NATS[index], up(rate), document


def upper_rate(count: int, total: int) -> float:
    """99 % upper bound of a rate (Wilson); at most 1."""
    if total == 0:
        return 1.0
    share, z = count / total, BOUND_Z
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return min(1.0, (middle + half) / (1 + z * z / total))


def _dispersion(counts: Floats, totals: Floats) -> float:
    """Variance of counts over what independent tokens would have: 1 where flips don't come in bunches."""
    expected = totals * counts.sum() / totals.sum()
    seen = expected > 0
    return float(((counts - expected)[seen] ** 2).sum() / expected[seen].sum()) if seen.any() else 1.0
