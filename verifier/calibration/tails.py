"""How far honest samples reach beyond what was seen: tails fitted to the largest tenth, and what they bound.

In: samples. Out: `Tail`, which gives the value that one sample in 1/p exceeds. Exceedances over the 90 % quantile are
taken as exponential, which for means of bounded terms is on the safe side; where their generalised Pareto shape, by
probability-weighted moments (Hosking and Wallis, 1987), lies more than two standard errors above 0, that heavier tail
is taken. Too few samples for a tail: a normal bound, its deviation widened by two standard errors.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

TAIL_SHARE = 0.1
MIN_SAMPLES = 300
MIN_EXCEEDANCES = 20
"""Fewer values than this above the threshold say nothing of a shape."""
SHAPE_ERROR = math.sqrt(4 / 3)
"""Standard error of the shape near 0, times √number of exceedances (Hosking and Wallis, section 3)."""
KS_CRITICAL = 1.094
"""Lilliefors' 5 % point of √n · D for an exponential with an estimated scale."""

Method = Literal["none", "exponential", "generalised Pareto", "normal"]


@dataclass(frozen=True)
class Tail:
    """`share` of the samples exceed `threshold`, by `scale` on average (the deviation, for a normal bound).

    `distance` is Kolmogorov's between the exceedances and the fit; at most `critical` is a fit that 5 % of true ones
    are worse than. `none`: all samples but a few are the same, and there is no tail to fit.
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
        times = self.share / probability
        if self.method == "exponential":
            return self.threshold + self.scale * math.log(times)
        return self.threshold + self.scale / self.shape * math.expm1(self.shape * math.log(times))

    def as_document(self) -> dict[str, Any]:
        return {key: _short(value) for key, value in asdict(self).items()}


def fit_tail(samples: Floats, threshold: float | None = None) -> Tail:
    """The tail above `threshold`, or above the 90 % quantile."""
    if threshold is None and len(samples) < MIN_SAMPLES:
        return _normal(samples)
    over = _threshold(samples) if threshold is None else threshold
    excesses = np.sort(samples[samples > over] - over)
    if len(excesses) < MIN_EXCEEDANCES:
        highest = float(samples.max())
        return Tail("none", len(samples), highest, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    shape, scale = _pareto(excesses)
    error = SHAPE_ERROR / math.sqrt(len(excesses))
    method: Method = "generalised Pareto" if shape > 2 * error else "exponential"
    if method == "exponential":
        scale = float(excesses.mean())
    return Tail(
        method=method,
        num_samples=len(samples),
        threshold=over,
        share=len(excesses) / len(samples),
        scale=scale,
        shape=shape,
        shape_error=error,
        distance=_distance(excesses, method, scale, shape),
        critical=KS_CRITICAL / math.sqrt(len(excesses)),
    )


def _threshold(samples: Floats) -> float:
    """The 90 % quantile; where samples are counts, half-way to the next one, as excesses over it would all be large."""
    quantile = float(np.quantile(samples, 1 - TAIL_SHARE, method="lower"))
    above = samples[samples > quantile]
    return (quantile + float(above.min())) / 2 if len(above) else quantile


def _normal(samples: Floats) -> Tail:
    if len(samples) < 2:
        return Tail("none", len(samples), float(samples.max()), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    widened = float(samples.std(ddof=1)) * (1 + 2 / math.sqrt(2 * (len(samples) - 1)))
    return Tail("normal", len(samples), float(samples.mean()), 1.0, widened, 0.0, 0.0, 0.0, 0.0)


def _pareto(excesses: Floats) -> tuple[float, float]:
    """Shape (0: exponential, > 0: heavier) and scale of sorted excesses."""
    places = (np.arange(1, len(excesses) + 1) - 0.35) / len(excesses)
    first, second = float(excesses.mean()), float(((1 - places) * excesses).mean())
    return 2 - first / (first - 2 * second), 2 * first * second / (first - 2 * second)


def _distance(excesses: Floats, method: Method, scale: float, shape: float) -> float:
    """Largest difference of the two distribution functions, half-way between values: counts come in steps."""
    values, counts = np.unique(excesses, return_counts=True)
    if len(values) < 2:
        return 1.0
    between = (values[1:] + values[:-1]) / 2
    if method == "exponential":
        fitted = 1 - np.exp(-between / scale)
    else:
        fitted = 1 - (1 + shape * between / scale) ** (-1 / shape)
    return float(np.abs(fitted - counts.cumsum()[:-1] / len(excesses)).max())


def _short(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value
