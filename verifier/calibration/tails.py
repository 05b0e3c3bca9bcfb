"""How far honest samples reach beyond what was seen: tails fitted to the largest ones, and what they bound.

In: samples. Out: `Tail`, which gives the value that one sample in 1/p exceeds.

Every statistic here is a mean or a largest of bounded terms, so its far tail is exponential at most (Chernoff). The
exceedances over the 90 % quantile are taken as exponential, or those over a higher one, if the lower still shows the
statistic's middle: their shape as a generalised Pareto, by probability-weighted moments (Hosking and Wallis, 1987),
must lie within two standard errors of 0 and Kolmogorov's distance within its 5 % point, or the shape beyond two below
it, which is lighter.
Where no quantile gives that, the scale of the highest is doubled ("widened"). Few samples get a normal bound
("normal"), or where each is the largest of many, the exponential of their upper half ("few"); many samples of which few
deviate an exponential too ("few"): all these with a scale that is two standard errors wider.

Behind that common tail may lie a rarer and wider one, of the few samples whose arithmetic is ill-conditioned: a fit to
the largest tenth, or hundredth, doesn't see it. So `fit_far` fits over quantiles from 99.5 % on as well, each exceeded
half as often as the one before, as long as MIN_FAR values exceed it, and takes the fit that reaches farthest ("far"),
its scale two standard errors wider.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from itertools import count, takewhile
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

TAIL_SHARES = (0.1, 0.05, 0.02, 0.01)
FAR_SHARE = 0.005
"""Halved until fewer than MIN_FAR values exceed."""
MIN_FAR = 30
MIN_SAMPLES = 300
MIN_EXCEEDANCES = 20
"""Fewer values than this above the threshold say nothing of a shape."""
SHAPE_ERROR = math.sqrt(4 / 3)
"""Standard error of the shape near 0, times √number of exceedances (Hosking and Wallis, section 3)."""
WIDENED = 2.0
KS_CRITICAL = 1.094
"""Lilliefors' 5 % point of √n · D for an exponential with an estimated scale."""

Method = Literal["none", "few", "exponential", "widened", "normal", "far"]


@dataclass(frozen=True)
class Tail:
    """`share` of the samples exceed `threshold`, by `scale` on average (the deviation, for a normal bound).

    `distance` is Kolmogorov's between the exceedances and the fit; at most `critical` is a fit that 5 % of true ones
    are worse than. `none`: nothing exceeds anything.
    """

    method: Method
    num_samples: int
    threshold: float
    share: float
    scale: float
    shape: float
    shape_error: float
    distance: float
    critical: float

    def beyond(self, probability: float) -> float:
        """The value that a sample exceeds with this probability; at least `threshold`."""
        if self.method == "none" or probability >= self.share:
            return self.threshold
        if self.method == "normal":
            return self.threshold + self.scale * NormalDist().inv_cdf(1 - probability)
        return self.threshold + self.scale * math.log(self.share / probability)

    @property
    def num_exceeding(self) -> int:
        return round(self.share * self.num_samples)

    @property
    def fits(self) -> bool:
        """Whether the exceedances look exponential, or clearly lighter, and an exponential goes beyond them."""
        is_lighter = self.shape < -2 * self.shape_error
        return is_lighter or (self.shape <= 2 * self.shape_error and self.distance <= self.critical)

    def as_document(self) -> dict[str, Any]:
        return {key: _short(value) for key, value in asdict(self).items()}


def fit_tail(samples: Floats, least: float = -math.inf, *, are_largest: bool = False) -> Tail:
    """The tail of the samples above `least`, and above the 90 % quantile or a higher one.

    `are_largest`: of many terms each, so that no normal bound holds for few of them.
    """
    if len(samples) < MIN_SAMPLES:
        return _upper_half(samples) if are_largest else _normal(samples)
    found = [_exponential(samples, max(least, _threshold(samples, share))) for share in TAIL_SHARES]
    fitted = [tail for tail in found if tail.method == "exponential"]
    if not fitted:
        return found[0]
    good = [tail for tail in fitted if tail.fits]
    return good[0] if good else replace(fitted[-1], method="widened", scale=WIDENED * fitted[-1].scale)


def fit_far(samples: Floats, probability: float, least: float = -math.inf, *, are_largest: bool = False) -> Tail:
    """`fit_tail`, or the fit over a far quantile that puts the value which one sample in 1 / `probability` exceeds
    farthest out."""
    common = fit_tail(samples, least, are_largest=are_largest)
    if common.method in ("none", "few", "normal"):
        return common
    return max([common, *_far_tails(samples, least)], key=lambda tail: tail.beyond(probability))


def _far_tails(samples: Floats, least: float) -> list[Tail]:
    """The last is of the largest values that there are: if it doesn't fit, its scale is doubled."""
    shares = takewhile(lambda share: share * len(samples) >= MIN_FAR, (FAR_SHARE / 2**power for power in count()))
    found = [_exponential(samples, max(least, _threshold(samples, share))) for share in shares]
    tails = [tail for tail in found if tail.method == "exponential"]
    if tails and not tails[-1].fits:
        tails[-1] = replace(tails[-1], scale=WIDENED * tails[-1].scale)
    return [replace(tail, method="far", scale=tail.scale * (1 + 2 / math.sqrt(tail.num_exceeding))) for tail in tails]


def _exponential(samples: Floats, over: float) -> Tail:
    """The exceedances over a threshold."""
    excesses = np.sort(samples[samples > over] - over)
    if not len(excesses):
        return Tail("none", len(samples), over, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    scale = float(excesses.mean())
    if len(excesses) < MIN_EXCEEDANCES:
        widened, share = scale * (1 + 2 / math.sqrt(len(excesses))), len(excesses) / len(samples)
        return Tail("few", len(samples), over, share, widened, 0.0, 0.0, 0.0, 0.0)
    return Tail(
        method="exponential",
        num_samples=len(samples),
        threshold=over,
        share=len(excesses) / len(samples),
        scale=scale,
        shape=_shape(excesses),
        shape_error=SHAPE_ERROR / math.sqrt(len(excesses)),
        distance=_distance(excesses, scale),
        critical=KS_CRITICAL / math.sqrt(len(excesses)),
    )


def _threshold(samples: Floats, share: float) -> float:
    """The quantile; half-way to the next lower value, as excesses over one that many have would all be large."""
    quantile = float(np.quantile(samples, 1 - share, method="lower"))
    below, above = samples[samples < quantile], samples[samples > quantile]
    if len(below):
        return (quantile + float(below.max())) / 2
    return (quantile + float(above.min())) / 2 if len(above) else quantile


def _upper_half(samples: Floats) -> Tail:
    """Few samples with an exponential tail: that of the upper half, its scale two standard errors wider."""
    tail = _exponential(samples, _threshold(samples, 0.5))
    method: Method = "few" if tail.method == "exponential" else tail.method
    return replace(tail, method=method, scale=tail.scale * (1 + 2 / math.sqrt(len(samples) / 2)))


def _normal(samples: Floats) -> Tail:
    if len(samples) < 2:
        return Tail("none", len(samples), float(samples.max()), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    widened = float(samples.std(ddof=1)) * (1 + 2 / math.sqrt(2 * (len(samples) - 1)))
    return Tail("normal", len(samples), float(samples.mean()), 1.0, widened, 0.0, 0.0, 0.0, 0.0)


def _shape(excesses: Floats) -> float:
    """Of sorted excesses as a generalised Pareto: 0 is exponential, above it heavier."""
    places = (np.arange(1, len(excesses) + 1) - 0.35) / len(excesses)
    first, second = float(excesses.mean()), float(((1 - places) * excesses).mean())
    if first - 2 * second < 1e-9 * first:  # all the same, which is lighter than anything
        return -1.0
    return 2 - first / (first - 2 * second)


def _distance(excesses: Floats, scale: float) -> float:
    """Largest difference of the two distribution functions, half-way between values: counts come in steps."""
    values, counts = np.unique(excesses, return_counts=True)
    if len(values) < 2:
        return 1.0
    between = (values[1:] + values[:-1]) / 2
    return float(np.abs(1 - np.exp(-between / scale) - counts.cumsum()[:-1] / len(excesses)).max())


def _short(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value
