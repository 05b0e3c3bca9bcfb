"""Whether each completion ends where it may: in EOS, or at the length limit without one.

In: tokens and finish reasons. Out: passed, or `termination_invalid` (not paid). `check_eos` runs after the
model: with sampling bound to the seed, EOS is judged like any token and P(EOS) is a reported statistic; in
pools with unbound sampling P(EOS) ≥ 0.1 is enforced (INTELLECT-2, section 2.3.3).
"""

from __future__ import annotations

import numpy as np

from protocol.checks.case import Case
from protocol.checks.measurements import Floats, audited_rollouts, measurements_of
from protocol.checks.results import passed, refused
from protocol.reasons import RejectReason
from protocol.rollouts import Rollout
from protocol.wire import CheckResult

NAME = "termination"
EOS_NAME = "eos_probability"
EOS_MEAN_NAME = "eos_probability_mean"
MIN_EOS_PROBABILITY = 0.1


def check(case: Case) -> CheckResult:
    for index, rollout in enumerate(case.rollouts):
        fault = _fault(case, rollout)
        if fault:
            return refused(NAME, RejectReason.TERMINATION_INVALID, f"rollout {index} {fault}")
    return passed(NAME, num_audited=len(case.rollouts))


def check_eos(case: Case) -> CheckResult:
    """The least P(EOS) among completions that stopped."""
    stopped = _stop_probabilities(case)
    if not len(stopped):
        return passed(EOS_NAME)
    least = float(stopped.min())
    if not case.rules.sampling.bound_to_seed and least < MIN_EOS_PROBABILITY:
        return refused(EOS_NAME, RejectReason.TERMINATION_INVALID, f"P(EOS) = {least:.4g}", num_audited=len(stopped))
    return passed(EOS_NAME, value=least, num_audited=len(stopped))


def check_eos_mean(case: Case) -> CheckResult:
    """Reported: the mean of P(EOS) among completions that stopped; forced stops lower it."""
    stopped = _stop_probabilities(case)
    return passed(EOS_MEAN_NAME, value=float(stopped.mean()) if len(stopped) else None, num_audited=len(stopped))


def _stop_probabilities(case: Case) -> Floats:
    has_stopped = [rollout.finish_reason == "stop" for rollout in audited_rollouts(case)]
    return measurements_of(case).eos_probabilities[has_stopped]


def _fault(case: Case, rollout: Rollout) -> str | None:
    limit = case.rules.sampling.max_new_tokens
    is_eos = np.isin(rollout.output_tokens, case.environment.tokenizer.eos_ids)
    if is_eos[:-1].any():
        return f"goes on after EOS at token {int(is_eos.argmax())}"
    if rollout.finish_reason == "stop" and not is_eos[-1]:
        return "claims to have stopped and doesn't end in EOS"
    if rollout.finish_reason == "length" and (is_eos[-1] or rollout.num_units != limit):
        return f"claims the length limit of {limit} with {rollout.num_units} tokens"
    return None
