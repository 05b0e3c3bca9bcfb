"""Whether the tokens are those that the seed's noise draws from the model's logits.

In: measurements. Out: two statistics, each against its limit: the mean margin (how far a claimed token's noised
logit lies below the best, clipped; Token-DiFR, arXiv:2511.20621) and the share of tokens that aren't the drawn
one. `check_tail` reports the share of tokens that the model holds for all but impossible.
In pools whose sampling isn't bound to the seed there is no noise to re-make, and nothing is measured.
"""

from __future__ import annotations

import numpy as np

from protocol.checks.case import Case
from protocol.checks.measurements import measurements_of
from protocol.checks.results import measured, passed
from protocol.reasons import RejectReason
from protocol.wire import CheckResult

MARGIN_NAME = "sampling_margin"
MISMATCH_NAME = "sampling_mismatch"
TAIL_NAME = "sampling_tail"
TINY_PROBABILITY = 1e-5


def check_margin(case: Case) -> CheckResult:
    if not case.rules.sampling.bound_to_seed:
        return passed(MARGIN_NAME)
    margins = measurements_of(case).margins
    return measured(
        MARGIN_NAME,
        RejectReason.SAMPLING_MISMATCH,
        float(margins.mean()),
        case.rules.thresholds.sampling_margin_mean,
        num_audited=len(margins),
        detail=f"largest margin {margins.max():.4g}",
    )


def check_mismatch(case: Case) -> CheckResult:
    if not case.rules.sampling.bound_to_seed:
        return passed(MISMATCH_NAME)
    is_off = measurements_of(case).margins > 0
    return measured(
        MISMATCH_NAME,
        RejectReason.SAMPLING_MISMATCH,
        float(is_off.mean()),
        case.rules.thresholds.sampling_mismatch_share,
        num_audited=len(is_off),
        detail=f"{int(is_off.sum())} of {len(is_off)} tokens",
    )


def check_tail(case: Case) -> CheckResult:
    """Reported only: an honest sampler draws such a token about once in 10^5 / vocabulary size."""
    tiny = measurements_of(case).logprobs < np.log(TINY_PROBABILITY)
    return passed(TAIL_NAME, value=float(tiny.mean()), num_audited=len(tiny))
