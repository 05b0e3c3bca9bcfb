"""Limits from samples: for each, the rule that gave it and what it rests on.

In: honest `Samples`. Out: `Chosen`, the thresholds and a derivation a limit. False-positive targets, per submission:
1e-6 to refuse, 1e-9 to slash.

    means       base + spread / √n     base: the worst pairing's mean; spread: the worst tail, over sample sizes, of
                                       (mean − base) · √n. Base times 1.5 (reject) and 2.5 (slash)
    largest     threshold of the tail over single rollouts, at target / rollouts a submission, times 1.5
    flips       the upper 99 % bound of the honest rate, worst pairing, times its dispersion and 1.5; where none was
                seen, how densely near-ties lie times how far log-probs differ; an exact binomial tail does the rest
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
from verifier.calibration.observe import TIE_NATS
from verifier.calibration.samples import Samples
from verifier.calibration.tails import MIN_SAMPLES, Floats, fit_tail

REJECT_RATE, SLASH_RATE = 1e-6, 1e-9
REJECT_FACTOR, SLASH_FACTOR = 1.5, 2.5
"""Of the worst mean: room for engines, kernels and machines that weren't measured."""
LARGEST_FACTOR = 1.5
RATE_FACTOR = 1.5
FLIP_RATE_FLOOR = 1e-5
"""Two float32 logits that are 1e-5 apart in 1: about as often does the noise draw two tokens so near to each other."""
MIN_TIES = 20
"""So many near-ties tell how densely they lie."""
TIE_SHARE = 0.95
TIE_NATS_FLOOR = 1e-4
TIE_RATE_FLOOR, TIE_RATE_CEILING = 0.1, 0.9
BOUND_Z = 2.326
"""One-sided 99 %."""

FLOORS = {
    "toploc_exp_mismatch_share": Limit(reject=0.0005, slash=0.002, spread=0.009),
    "toploc_mantissa_mean": Limit(reject=0.01, slash=0.05, spread=0.03),
    "sampling_margin_mean": Limit(reject=0.0001, slash=0.001, spread=0.005),
    "sampling_margin_max": Limit(reject=0.005, slash=0.02),
    "logprob_error_mean": Limit(reject=0.0005, spread=0.002),
    "logprob_error_max": Limit(reject=0.01),
}
"""Least limits. A lone chunk has 128 values: one of them may round the other way, 1/128 = 0.0078 in the exponents
and in the mean mantissa. Log-probs and margins of float32 engines differ by 1e-5 nats; a hundred times that is still
far below what another model or sampler does."""
UNITS = {"toploc_exp_mismatch_share": "num_chunks", "toploc_mantissa_mean": "num_chunks"}
"""What a statistic is a mean over; the others are over tokens."""
NEVER_SLASHED = ("logprob_error_mean", "logprob_error_max")
MEANS = ("toploc_exp_mismatch_share", "toploc_mantissa_mean", "sampling_margin_mean", "logprob_error_mean")
LARGEST = ("sampling_margin_max", "logprob_error_max")


@dataclass(frozen=True)
class Chosen:
    """Limits, and for each how it came about, as a JSON object."""

    thresholds: Thresholds
    derivations: dict[str, dict[str, Any]]


def choose_limits(samples: Samples, clip: float) -> Chosen:
    """Thresholds for honest samples like these; `samples` hold sizes from one rollout to a submission."""
    limits, derivations = {}, {}
    for name in MEANS:
        limits[name], derivations[name] = mean_limit(samples, name)
    for name in LARGEST:
        limits[name], derivations[name] = largest_limit(samples, name)
    flips, derivations["sampling_flips"] = flip_test(samples.of_size(1))
    nats, rate, derivations["near_ties"] = near_ties(samples.of_size(1))
    thresholds = Thresholds(
        **limits, sampling_flips=flips, near_tie_nats=nats, near_tie_flip_rate=rate, sampling_margin_clip=clip
    )
    return Chosen(thresholds, derivations)


def mean_limit(samples: Samples, name: str) -> tuple[Limit, dict[str, Any]]:
    """base · factor + spread / √n, and where it comes from."""
    unit = UNITS.get(name, "num_tokens")
    means = [_mean(samples.of_size(1).of_pairing(place), name, unit) for place in range(len(samples.pairings))]
    worst = int(np.argmax(means))
    levels = list(_levels(samples, name, unit, means[worst]))
    spread = max(level["reject_spread"] for level in levels)
    slash_spread = max(level["slash_spread"] for level in levels)
    # `Limit.at` gives slash twice the spread; what that lacks goes to the base, at the smallest sample.
    lacking = max(0.0, slash_spread - 2 * spread)
    limit = _at_least(
        FLOORS[name],
        reject=REJECT_FACTOR * means[worst],
        slash=None if name in NEVER_SLASHED else SLASH_FACTOR * means[worst] + lacking,
        spread=spread,
    )
    document = {
        "rule": "mean",
        "observations": unit,
        "worst_pairing": list(samples.pairings[worst]),
        "worst_mean": _short(means[worst]),
        "sizes": levels,
    }
    return limit, document


def largest_limit(samples: Samples, name: str) -> tuple[Limit, dict[str, Any]]:
    """For the largest of a submission's tokens: over R rollouts the chance is R times that of one."""
    alone, num_rollouts = samples.of_size(1), samples.sizes[-1]
    values = alone.column(name)
    tail = fit_tail(values, threshold=0.0 if np.quantile(values, 0.9) == 0 else None)
    reject, slash = (LARGEST_FACTOR * tail.beyond(rate / num_rollouts) for rate in (REJECT_RATE, SLASH_RATE))
    limit = _at_least(FLOORS[name], reject=reject, slash=None if name in NEVER_SLASHED else slash)
    return limit, {"rule": "largest", "rollouts_a_submission": num_rollouts, "tail": tail.as_document()}


def flip_test(alone: Samples) -> tuple[FlipTest, dict[str, Any]]:
    """The rate of the exact test, from samples of one rollout."""
    bounds = list(_flip_bounds(alone)) or [expected_rate(alone)]
    dispersion = _dispersion(alone.column("num_flips"), alone.column("num_tokens"))
    rate = max(FLIP_RATE_FLOOR, RATE_FACTOR * max(1.0, dispersion) * max(bounds))
    document = {
        "rule": "flips",
        "num_flips": alone.total("num_flips"),
        "num_tokens": alone.total("num_tokens"),
        "bound": _short(max(bounds)),
        "dispersion": _short(dispersion),
    }
    return FlipTest(rate=_up(min(0.5, rate)), reject=REJECT_RATE, slash=SLASH_RATE), document


def expected_rate(alone: Samples) -> float:
    """Where no flip was seen: how often two noised logits are as near as the largest error of a log-prob, twice."""
    reach = 2 * alone.column("logprob_error_max").max()
    ties = np.array([o.num_ties for o in alone.observations]).sum(axis=0)
    index = next((i for i, count in enumerate(ties) if count >= MIN_TIES), len(TIE_NATS) - 1)
    return float(reach * max(1, ties[index]) / TIE_NATS[index] / alone.total("num_tokens"))


def _flip_bounds(alone: Samples) -> Iterator[float]:
    """Upper bounds of the rate: of all together, and of each pairing that has enough to say."""
    parts = [alone, *(alone.of_pairing(place) for place in range(len(alone.pairings)))]
    for part in parts:
        if part.total("num_flips") > 0 and (part is alone or len(part) >= MIN_SAMPLES):
            yield upper_rate(part.total("num_flips"), part.total("num_tokens"))


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
    return TIE_NATS[index], _up(rate), document


def upper_rate(count: int, total: int) -> float:
    """99 % upper bound of a rate (Wilson); at most 1."""
    if total == 0:
        return 1.0
    share, z = count / total, BOUND_Z
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return min(1.0, (middle + half) / (1 + z * z / total))


def _levels(samples: Samples, name: str, unit: str, base: float) -> Iterator[dict[str, Any]]:
    """The tail of (mean − base) · √n at each size of sample, all pairings together and the worst ones alone."""
    num_rollouts = samples.sizes[-1]
    for size in samples.sizes:
        part = samples.of_size(size)
        tails = [fit_tail(_deviations(part, name, unit, base))]
        for place in range(len(part.pairings)):
            alone = part.of_pairing(place)
            if len(alone) >= MIN_SAMPLES:
                tails.append(fit_tail(_deviations(alone, name, unit, base)))
        # A submission has this many samples of the size, any of which may be looked at.
        rates = [rate * size / num_rollouts for rate in (REJECT_RATE, SLASH_RATE)]
        worst = max(tails, key=lambda tail: tail.beyond(rates[0]))
        highest = float(_deviations(part, name, unit, base).max())
        yield {
            "num_rollouts": size,
            "num_samples": len(part),
            "num_observations": _short(float(part.column(unit).mean())),
            "highest": _short(highest),
            "tail": worst.as_document(),
            "reject_spread": _short(max(0.0, highest, worst.beyond(rates[0]))),
            "slash_spread": _short(max(0.0, highest, *(tail.beyond(rates[1]) for tail in tails))),
        }


def _deviations(part: Samples, name: str, unit: str, base: float) -> Floats:
    return (part.column(name) - base) * np.sqrt(part.column(unit))


def _mean(part: Samples, name: str, unit: str) -> float:
    """Pooled over all of the part's observations."""
    weights = part.column(unit)
    return float((part.column(name) * weights).sum() / weights.sum())


def _dispersion(counts: Floats, totals: Floats) -> float:
    """Variance of counts over what independent tokens would have: 1 where flips don't come in bunches."""
    expected = totals * counts.sum() / totals.sum()
    seen = expected > 0
    return float(((counts - expected)[seen] ** 2).sum() / expected[seen].sum()) if seen.any() else 1.0


def _at_least(floor: Limit, reject: float, slash: float | None, spread: float = 0.0) -> Limit:
    highest = None if floor.slash is None or slash is None else _up(max(floor.slash, slash))
    return Limit(reject=_up(max(floor.reject, reject)), slash=highest, spread=_up(max(floor.spread, spread)))


def _up(value: float) -> float:
    """To two significant digits, upwards: limits are read by people."""
    if value == 0:
        return 0.0
    scale = 10 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / scale - 1e-9) * scale:.2g}")


def _short(value: float) -> float:
    return float(f"{value:.4g}")
