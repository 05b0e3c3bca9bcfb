"""Limits from samples: for each, the rule that gave it and what it rests on.

In: honest `Samples`. Out: `Chosen`, the thresholds and a derivation a limit. False-positive targets, per submission:
1e-6 to refuse, 1e-9 to slash.

    means       reject = 1.5 · base, slash = 2.5 · base, base: the mean of the worst pairing. spread: the worst tail of
                (mean − base) · √n over whole submissions; burst: what smaller samples, down to a rollout, need more
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
from verifier.calibration.observe import TIE_NATS
from verifier.calibration.samples import Samples
from verifier.calibration.tails import MIN_SAMPLES, Floats, Tail, fit_tail

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
    "toploc_exp_mismatch_share": Limit(reject=0.0005, slash=0.001, burst=0.01),
    "toploc_mantissa_mean": Limit(reject=0.005, slash=0.02, burst=0.03),
    "sampling_margin_mean": Limit(reject=0.0001, slash=0.001, burst=0.01),
    "sampling_margin_max": Limit(reject=0.002, slash=0.01),
    "logprob_error_mean": Limit(reject=0.0005, burst=0.005),
    "logprob_error_max": Limit(reject=0.01),
}
"""Least limits. A lone chunk has 128 values: one of them may round the other way, 1/128 = 0.0078 in the exponents
and in the mean mantissa. Log-probs and margins of float32 engines differ by 1e-5 nats; a hundred times that is still
far below what another model or sampler does."""
UNITS = {"toploc_exp_mismatch_share": "num_chunks", "toploc_mantissa_mean": "num_chunks"}
"""What a statistic is a mean over; the others are over tokens."""
NEVER_SLASHED = ("logprob_error_mean", "logprob_error_max")
MEANS = ("toploc_exp_mismatch_share", "toploc_mantissa_mean", "logprob_error_mean")
LARGEST = ("sampling_margin_max", "logprob_error_max")
MARGIN = "sampling_margin_mean"


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
    limits[MARGIN], derivations[MARGIN] = margin_limit(samples, flips.rate)
    nats, rate, derivations["near_ties"] = near_ties(samples.of_size(1))
    thresholds = Thresholds(
        **limits, sampling_flips=flips, near_tie_nats=nats, near_tie_flip_rate=rate, sampling_margin_clip=clip
    )
    return Chosen(thresholds, derivations)


def mean_limit(samples: Samples, name: str) -> tuple[Limit, dict[str, Any]]:
    """Of a mean over chunks or tokens, and where it comes from."""
    unit = UNITS.get(name, "num_tokens")
    alone = samples.of_size(1)
    means = [_mean(alone.of_pairing(place), name, unit) for place in range(len(samples.pairings))]
    worst = int(np.argmax(means))
    levels = [_level(samples.of_size(size), name, unit, means[worst], samples.sizes[-1]) for size in samples.sizes]
    spread = max(0.0, levels[-1].reject)
    burst = max(0.0, *((level.reject - spread) * math.sqrt(level.most) for level in levels))
    # Room counts twice for slash; what smaller targets need more than that goes to the base.
    lacking = max((level.slash - 2 * spread - 2 * burst / math.sqrt(level.most)) for level in levels)
    never = name in NEVER_SLASHED
    limit = _at_least(
        FLOORS[name],
        reject=REJECT_FACTOR * means[worst],
        slash=None if never else max(SLASH_FACTOR * means[worst], means[worst] + lacking),
        spread=spread,
        burst=burst,
    )
    document = {
        "rule": "means",
        "observations": unit,
        "worst_pairing": list(samples.pairings[worst]),
        "worst_mean": _short(means[worst]),
        "sizes": [level.as_document() for level in levels],
    }
    return limit, document


def largest_limit(samples: Samples, name: str) -> tuple[Limit, dict[str, Any]]:
    """For the largest of a submission's tokens: over R rollouts the chance is R times that of one."""
    alone, num_rollouts = samples.of_size(1), samples.sizes[-1]
    tail = fit_tail(alone.column(name), least=0.0)
    reject, slash = (LARGEST_FACTOR * tail.beyond(rate / num_rollouts) for rate in (REJECT_RATE, SLASH_RATE))
    limit = _at_least(FLOORS[name], reject=reject, slash=None if name in NEVER_SLASHED else slash)
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
        total / num_flips * (1 + 2 / math.sqrt(num_flips)), fit_tail(alone.column("sampling_margin_max"), 0.0).scale
    )
    nats = math.log(num_rollouts / REJECT_RATE)
    limit = _at_least(
        FLOORS[MARGIN],
        reject=mean * rate,
        slash=SLASH_FACTOR * mean * rate,
        spread=2 * mean * math.sqrt(rate * nats),
        burst=mean * nats,
    )
    return limit, {"rule": "margins", "num_flips": num_flips, "flip_margin": _short(mean), "rate": _short(rate)}


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


@dataclass(frozen=True)
class _Level:
    """Samples of one size: how far (mean − base) · √n reaches at both targets; they are over `most` observations."""

    num_rollouts: int
    num_samples: int
    most: float
    highest: float
    reject: float
    slash: float
    tail: Tail

    def as_document(self) -> dict[str, Any]:
        document = {"num_rollouts": self.num_rollouts, "num_samples": self.num_samples, "most_observations": self.most}
        reach = {"highest": self.highest, "reject": self.reject, "slash": self.slash}
        return document | {key: _short(value) for key, value in reach.items()} | {"tail": self.tail.as_document()}


def _level(part: Samples, name: str, unit: str, base: float, num_rollouts: int) -> _Level:
    """The worst tail at this size: of all pairings together, or of one that has enough samples."""
    size = part.sizes[0]
    parts = [part, *(part.of_pairing(place) for place in range(len(part.pairings)))]
    deviations = [_deviations(one, name, unit, base) for one in parts if one is part or len(one) >= MIN_SAMPLES]
    tails = [fit_tail(one, least=0.0) for one in deviations]
    # A submission has this many samples of the size, any of which may be looked at.
    reject, slash = (rate * size / num_rollouts for rate in (REJECT_RATE, SLASH_RATE))
    highest = float(deviations[0].max())
    return _Level(
        num_rollouts=size,
        num_samples=len(part),
        most=float(part.column(unit).max()),
        highest=highest,
        reject=max(highest, *(tail.beyond(reject) for tail in tails)),
        slash=max(highest, *(tail.beyond(slash) for tail in tails)),
        tail=max(tails, key=lambda tail: tail.beyond(reject)),
    )


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


def _at_least(floor: Limit, reject: float, slash: float | None, spread: float = 0.0, burst: float = 0.0) -> Limit:
    highest = None if floor.slash is None or slash is None else _up(max(floor.slash, slash))
    room = {"spread": _up(max(floor.spread, spread)), "burst": _up(max(floor.burst, burst))}
    return Limit(reject=_up(max(floor.reject, reject)), slash=highest, **room)


def _up(value: float) -> float:
    """To two significant digits, upwards: limits are read by people."""
    if value == 0:
        return 0.0
    scale = 10 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / scale - 1e-9) * scale:.2g}")


def _short(value: float) -> float:
    return float(f"{value:.4g}")
