"""The least limits, where honest work shows next to no deviation and there is no tail to fit.

In: a fitted limit. Out: the limit, nowhere below its floor, in numbers that people read.
"""

from __future__ import annotations

import math

from protocol.rules import Limit

REJECT_RATE, SLASH_RATE = 1e-6, 1e-9
NEVER_SLASHED = ("logprob_error_mean", "logprob_error_max")
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


def at_least(floor: Limit, reject: float, slash: float | None, spread: float = 0.0, burst: float = 0.0) -> Limit:
    """Both, the larger of each part."""
    highest = None if floor.slash is None or slash is None else up(max(floor.slash, slash))
    room = {"spread": up(max(floor.spread, spread)), "burst": up(max(floor.burst, burst))}
    return Limit(reject=up(max(floor.reject, reject)), slash=highest, **room)


def up(value: float) -> float:
    """To two significant digits, upwards: limits are read by people."""
    if value == 0:
        return 0.0
    scale = 10 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / scale - 1e-9) * scale:.2g}")


def short(value: float) -> float:
    return float(f"{value:.4g}")
