"""Limits from samples: for each, the rule that gave it and what it rests on.

In: honest `Samples`. Out: `Chosen`, the thresholds and a derivation a limit. False-positive targets, per submission:
1e-6 to refuse, 1e-9 to slash.

    means       a base, and room for what varies: `means.py`
    largest     1.5 · the tail over single rollouts, at target / rollouts a submission
    flips       rate = 1.5 · dispersion · the upper 99 % bound of the honest rate, worst pairing; where none was seen,
                how densely near-ties lie times how far log-probs differ. An exact binomial tail does the rest
    margins     a sum of flips: Poisson many, exponential each with mean m. P[sum > s] is at most
                exp(−(√(s/m) − √(rate · n))²) (Chernoff), so mean ≤ m · (√rate + √(ln(1/target) / n))²
    near-ties   the least of TIE_NATS that holds 95 % of the honest flips; the same bound of the rate among them

Where honest work shows next to no deviation there is no tail to fit: a floor holds then, FLOORS.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.rules import FlipTest, Limit, Thresholds
from protocol.statistics import binomial_tail
from verifier.calibration.floors import FLOORS, NEVER_SLASHED, REJECT_RATE, SLASH_RATE, at_least, short, up
from verifier.calibration.means import SLASH_FACTOR, mean_limit
from verifier.calibration.observe import TIE_NATS
from verifier.calibration.samples import Samples
from verifier.calibration.tails import Floats, fit_tail

LARGEST_FACTOR = 1.5
RATE_FACTOR = 1.5
FLIP_RATE_FLOOR = 1e-5
"""Two float32 logits that are 1e-5 apart in 1: about as often does the noise draw two tokens so near to each other."""
MIN_TIES = 20
"""So many near-ties tell how densely they lie."""
TIE_SHARE = 0.95
TIE_NATS_FLOOR = 1e-4
TIE_RATE_FLOOR, TIE_RATE_CEILING = 0.1, 0.9
UNLIKE = 0.01
"""A pairing has a rate of its own where the common one would give so many flips this rarely, over all pairings."""
BOUND_Z = 2.326
"""One-sided 99 %."""

MEANS = ("toploc_exp_mismatch_share", "toploc_mantissa_mean", "logprob_error_mean")
LARGEST = ("sampling_margin_max", "logprob_error_max")
MARGIN = "sampling_margin_mean"


@dataclass(frozen=True)
class Chosen:
    """Limits, and for each how it came about, as a JSON object."""

    thresholds: Thresholds
    derivations: dict[str, dict[str, Any]]


def choose_limits(samples: Samples, clip: float, group_size: int) -> Chosen:
    """Thresholds for honest samples like these; `samples` hold sizes from one rollout to a submission."""
    limits, derivations = {}, {}
    for name in MEANS:
        limits[name], derivations[name] = mean_limit(samples, name, group_size)
    for name in LARGEST:
        limits[name], derivations[name] = largest_limit(samples, name)
    flips, derivations["sampling_flips"] = flip_test(samples.of_size(1))
    limits[MARGIN], derivations[MARGIN] = margin_limit(samples, flips.rate)
    nats, rate, derivations["near_ties"] = near_ties(samples.of_size(1))
    thresholds = Thresholds(
        **limits, sampling_flips=flips, near_tie_nats=nats, near_tie_flip_rate=rate, sampling_margin_clip=clip
    )
    return Chosen(thresholds, derivations)


def largest_limit(samples: Samples, name: str) -> tuple[Limit, dict[str, Any]]:
    """For the largest of a submission's tokens: over R rollouts the chance is R times that of one."""
    alone, num_rollouts = samples.of_size(1), samples.sizes[-1]
    tail = fit_tail(alone.column(name), least=0.0, are_largest=True)
    reject, slash = (LARGEST_FACTOR * tail.beyond(rate / num_rollouts) for rate in (REJECT_RATE, SLASH_RATE))
    limit = at_least(FLOORS[name], reject=reject, slash=None if name in NEVER_SLASHED else slash)
    return limit, {"rule": "largest", "rollouts_a_submission": num_rollouts, "tail": tail.as_document()}


def margin_limit(samples: Samples, rate: float) -> tuple[Limit, dict[str, Any]]:
    """m · (√rate + √(L / n))² = m·rate + 2m·√(rate·L) / √n + m·L / n, with L = ln(rollouts a submission / target)."""
    alone, num_rollouts = samples.of_size(1), samples.sizes[-1]
    num_flips = alone.total("num_flips")
    if not num_flips:
        return FLOORS[MARGIN], {"rule": "margins", "num_flips": 0}
    total = float((alone.column(MARGIN) * alone.column("num_tokens")).sum())
    # A tail that is flatter than all flips together decides.
    mean = LARGEST_FACTOR * max(
        total / num_flips * (1 + 2 / math.sqrt(num_flips)),
        fit_tail(alone.column("sampling_margin_max"), 0.0, are_largest=True).scale,
    )
    nats = math.log(num_rollouts / REJECT_RATE)
    limit = at_least(
        FLOORS[MARGIN],
        reject=mean * rate,
        slash=SLASH_FACTOR * mean * rate,
        spread=2 * mean * math.sqrt(rate * nats),
        burst=mean * nats,
    )
    return limit, {"rule": "margins", "num_flips": num_flips, "flip_margin": short(mean), "rate": short(rate)}


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
