"""The claimed log-probs against the model's.

In: measurements. Out: mean absolute difference in nats against its limit; `logprob_mismatch` is never slashed.
"""

from __future__ import annotations

import numpy as np

from protocol.checks.case import Case
from protocol.checks.measurements import measurements_of
from protocol.checks.results import measured
from protocol.reasons import RejectReason
from protocol.wire import CheckResult

NAME = "logprobs"


def check(case: Case) -> CheckResult:
    claimed = np.concatenate([rollout.output_logprobs for rollout in case.rollouts]).astype(np.float64)
    errors = np.abs(claimed - measurements_of(case).logprobs)
    return measured(
        NAME,
        RejectReason.LOGPROB_MISMATCH,
        float(errors.mean()),
        case.rules.thresholds.logprob_error_mean,
        num_audited=len(errors),
        detail=f"largest difference {errors.max():.4g} nats",
    )
