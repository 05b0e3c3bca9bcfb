"""The limit of the mean margin, and the clip up to which a margin counts for it.

    clip    1.5 · what one honest flip in 1,000 exceeds if they go on as from the 90 % quantile to the 99 % one. A rare
            far flip counts as no more than that, and as quantiles don't see how far it is, it widens nothing that is
            pooled; `sampling_margin_max` judges it by itself. Fewer than MIN_FLIPS flips have no such quantile: margins
            count as they are then
    mean    S, the sum of n tokens' clipped margins, has E exp(θS) ≤ exp(κn), so P[S ≥ s] ≤ exp(κn − θs) for every θ > 0
            (Chernoff, Bennett), and the mean is beyond κ/θ + ln(1/target) / (θn) with probability target at most.
            reject = κ/θ, burst = ln(1/target)/θ, with the θ that gives a submission the least limit

    κ       = room · max over sizes of ln(mean exp(θS)) / tokens  +  ln 100 / N · (exp(θb) − 1)
            Sizes: one rollout to a submission, so that flips that come in bunches raise it. `room` is what the rate of
            the flip test has over the rate seen: the worst pairing, bunches, half as much again. The second term is for
            what N tokens don't show, at 99 %: flips as far as they count, b = min(clip, reject limit of the largest)

In: honest `Samples`. Out: a clip, a `Limit`, and where they come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.rules import Limit
from verifier.calibration.floors import FLOORS, REJECT_RATE, at_least, short, up
from verifier.calibration.means import REJECT_FACTOR, SLASH_FACTOR
from verifier.calibration.samples import Samples
from verifier.calibration.tails import Floats

MARGIN = "sampling_margin_mean"
CLIP_FACTOR = 1.5
MIN_FLIPS = 100
TILTS = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0)
"""θ · b. A flip at b then weighs exp(6) = 400 times; beyond, what no sample shows would decide."""
UNSEEN = math.log(100)
"""An event that happens so often in all tokens on average isn't seen in one calibration of 100."""


def margin_clip(alone: Samples, otherwise: float) -> tuple[float, dict[str, Any]]:
    """The clip, from samples of one rollout each; `otherwise` where there are too few flips."""
    margins = alone.flip_margins()
    if len(margins) < MIN_FLIPS:
        return otherwise, {"rule": "clip", "num_flips": len(margins)}
    q90, q99 = np.quantile(margins, (0.9, 0.99)).tolist()
    document = {"rule": "clip", "num_flips": len(margins), "q90": short(q90), "q99": short(q99)}
    return min(otherwise, up(CLIP_FACTOR * (q99 + (q99 - q90)))), document


def margin_limit(samples: Samples, clip: float, rate: float, largest: Limit) -> tuple[Limit, dict[str, Any]]:
    """Of the mean of clipped margins. `rate`: of the flip test; `largest`: the limit of single margins."""
    alone = samples.of_size(1)
    num_flips = alone.total("num_flips")
    if not num_flips:
        return FLOORS[MARGIN], {"rule": "margins", "num_flips": 0}
    clipped = samples.clipped(clip)
    pooled = [_Pooled.of(clipped.of_size(size)) for size in samples.sizes]
    reach, room = min(clip, largest.reject), rate * alone.total("num_tokens") / num_flips
    num_seen, nats = _tokens_seen_once(alone), -math.log(REJECT_RATE)

    def cumulant(theta: float) -> float:
        return room * max(p.cumulant(theta) for p in pooled) + UNSEEN / num_seen * math.expm1(theta * reach)

    def mean_allowed(theta: float) -> float:
        """For a submission."""
        return (cumulant(theta) + nats / pooled[-1].num_tokens) / theta

    theta = min((tilt / reach for tilt in TILTS), key=mean_allowed)
    base = cumulant(theta) / theta
    limit = at_least(FLOORS[MARGIN], reject=base, slash=SLASH_FACTOR / REJECT_FACTOR * base, burst=nats / theta)
    document = {"rule": "margins", "num_flips": num_flips, "reach": short(reach), "theta": short(theta)}
    return limit, document | {"cumulant": short(cumulant(theta)), "room": short(room)}


@dataclass(frozen=True, eq=False)
class _Pooled:
    """Samples of one size: each one's sum of margins, and the tokens of one on average."""

    sums: Floats
    num_tokens: float

    @classmethod
    def of(cls, part: Samples) -> _Pooled:
        counts = part.column("num_tokens")
        return cls(part.column(MARGIN) * counts, float(counts.mean()))

    def cumulant(self, theta: float) -> float:
        """ln(mean exp(θS)) per token."""
        return float(np.logaddexp.reduce(theta * self.sums) - math.log(len(self.sums))) / self.num_tokens


def _tokens_seen_once(alone: Samples) -> float:
    """The most that one judge has seen: others look at the same rollouts again."""
    judges = np.array([judge for _, judge in alone.pairings])[alone.places]
    counts = alone.column("num_tokens")
    return max(float(counts[judges == judge].sum()) for judge in set(judges.tolist()))
