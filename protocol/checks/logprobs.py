"""The claimed log-probs against the model's.

In: measurements. Out: mean absolute difference in nats, and the largest, against their limits; `logprob_mismatch` is
never slashed.
"""

from __future__ import annotations

import numpy as np

from protocol.checks.case import Case
from protocol.checks.measurements import Floats, audited_rollouts, measurements_of
from protocol.checks.results import measured, passed
from protocol.reasons import RejectReason
from protocol.wire import CheckResult

NAME = "logprobs"
LARGEST_NAME = "logprobs_max"


def check(case: Case) -> CheckResult:
    errors = errors_of(case)
    return measured(
        NAME,
        RejectReason.LOGPROB_MISMATCH,
        float(errors.mean()),
        case.rules.thresholds.logprob_error_mean,
        num_audited=len(errors),
        num_observations=len(errors),
    )


def check_largest(case: Case) -> CheckResult:
    errors, limit = errors_of(case), case.rules.thresholds.logprob_error_max
    rollout, position = measurements_of(case).place(int(errors.argmax()))
    value, detail = float(errors.max()), f"rollout {rollout}, token {position}"
    if limit is None:
        return passed(LARGEST_NAME, value=value, num_audited=len(errors), detail=detail)
    return measured(
        *(LARGEST_NAME, RejectReason.LOGPROB_MISMATCH, value, limit),
        num_audited=len(errors),
        num_observations=len(errors),
        detail=detail,
    )


def claimed_logprobs(case: Case) -> Floats:
    """[N], of the audited rollouts."""
    return np.concatenate([rollout.output_logprobs for rollout in audited_rollouts(case)]).astype(np.float64)


def errors_of(case: Case) -> Floats:
    """[N] nats, absolute."""
    errors: Floats = np.abs(claimed_logprobs(case) - measurements_of(case).logprobs)
    return errors
