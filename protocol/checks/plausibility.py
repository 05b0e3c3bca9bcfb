"""Whether the tokens look like a sample of the model's distribution at all (INTELLECT-2, section 2.3.3).

A small model that generates, and the right one that prefills once for the proofs, gives a distribution with two humps:
likely tokens, and too many that the right model holds for all but impossible. In: measurements. Out: the share of
chosen tokens with tiny probability against the share that the model itself expects, and mean surprisal against mean
entropy as a z value. Both are reported where sampling is bound to the seed (`checks/sampling.py` is stricter by far),
and drop a submission where it isn't. top_k and top_p take away the least likely tokens, so that honest ones only look
surer than the model expects: the tail's limit holds all the same, and the surprisal's on its upper side.
"""

from __future__ import annotations

import math

import numpy as np

from protocol.checks.case import Case
from protocol.checks.measurements import measurements_of
from protocol.checks.results import measured, passed
from protocol.reasons import RejectReason
from protocol.rules import Limit
from protocol.sampling import keeps_all
from protocol.sampling_rows import TINY
from protocol.statistics import least_count
from protocol.wire import CheckResult

TAIL_NAME = "plausibility_tail"
SURPRISAL_NAME = "plausibility_surprisal"

PRIOR_TOKENS = 30
"""So many tokens that deviate by 1 nat are counted in with the measured ones: a few, or sure ones, have no spread."""


def check_tail(case: Case) -> CheckResult:
    """The limit is the least share that the expected one gives by chance less often than the flip test's `reject`.

    A sum of unequal chances exceeds its mean no more easily than a binomial of their mean (Hoeffding, 1956).
    """
    found = measurements_of(case)
    num_tokens = found.num_tokens
    num_tiny = int((found.logprobs < math.log(TINY)).sum())
    num_expected = float(found.rows.tiny_probabilities.sum())
    detail = f"{num_tiny} of {num_tokens} tokens, {num_expected:.4g} expected"
    if case.rules.sampling.bound_to_seed:
        return passed(TAIL_NAME, value=num_tiny / num_tokens, num_audited=num_tokens, detail=detail)
    rate = case.rules.thresholds.sampling_flips.reject
    most = least_count(num_tokens, num_expected / num_tokens, rate) - 1
    return _dropped_at_most(TAIL_NAME, num_tiny / num_tokens, most / num_tokens, num_tokens, detail)


def check_surprisal(case: Case) -> CheckResult:
    """z = mean of (−logprob − entropy) over its standard error; honest tokens have mean 0.

    Surprisals have long tails, so that a few tokens get more room (`surprisal_z` has a spread).
    """
    found = measurements_of(case)
    differences = -found.logprobs - found.rows.entropies
    variance = (found.num_tokens * float(differences.var()) + PRIOR_TOKENS) / (found.num_tokens + PRIOR_TOKENS)
    z = float(differences.mean()) * math.sqrt(found.num_tokens / variance)
    detail = f"{-found.logprobs.mean():.4g} nats chosen, {np.mean(found.rows.entropies):.4g} expected"
    if case.rules.sampling.bound_to_seed:
        return passed(SURPRISAL_NAME, value=z, num_audited=found.num_tokens, detail=detail)
    reject = case.rules.thresholds.surprisal_z.at(found.num_tokens).reject
    deviation = abs(z) if keeps_all(case.rules.sampling) else max(z, 0.0)
    return _dropped_at_most(SURPRISAL_NAME, deviation, reject, found.num_tokens, detail)


def _dropped_at_most(name: str, value: float, most: float, num_tokens: int, detail: str) -> CheckResult:
    limit = Limit(reject=most)
    return measured(name, RejectReason.SAMPLING_MISMATCH, value, limit, num_audited=num_tokens, detail=detail)
