"""Whether the tokens are those that the seed's noise draws from the model's logits.

In: measurements. Out: how far claimed tokens lie below the drawn ones (their **margins**, Token-DiFR's statistic,
arXiv:2511.20621), clipped and pooled, and the largest of them, each against its limit; and how many tokens aren't the
drawn one (**flips**) against what rounding does to honest ones, an exact binomial test, once over all tokens and once
over the near-ties, where a worker could take the branch that it likes; and whether flips lean to one side, as rounding
doesn't and another sampler does. `check_freedom` reports what choice is left to it.
In pools whose sampling isn't bound to the seed there is no noise to re-make, and nothing is measured.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.checks.case import Case
from protocol.checks.measurements import Measurements, measurements_of
from protocol.checks.results import counted, measured, passed
from protocol.reasons import RejectReason
from protocol.rules import FlipTest, Thresholds
from protocol.statistics import binary_entropy, least_count
from protocol.wire import CheckResult

MARGIN_NAME = "sampling_margin"
LARGEST_NAME = "sampling_margin_max"
FLIPS_NAME = "sampling_flips"
TIES_NAME = "sampling_ties"
SIDES_NAME = "sampling_sides"
FREEDOM_NAME = "sampling_freedom"


def check_margin(case: Case) -> CheckResult:
    if not case.rules.sampling.bound_to_seed:
        return passed(MARGIN_NAME)
    found = measurements_of(case)
    return measured(
        MARGIN_NAME,
        RejectReason.SAMPLING_MISMATCH,
        pooled_margin(case, found),
        case.rules.thresholds.sampling_margin_mean,
        num_audited=found.num_tokens,
        num_observations=found.num_tokens,
    )


def pooled_margin(case: Case, found: Measurements) -> float:
    """The mean margin (nats), each counted up to `sampling_margin_clip`.

    Honest margins are tiny but for rare ones, of which one may be as large as all others together: unclipped, the limit
    of the mean would have to have room for those. The largest has a limit of its own.
    """
    return float(np.minimum(found.margins, case.rules.thresholds.sampling_margin_clip).mean())


def check_largest(case: Case) -> CheckResult:
    if not case.rules.sampling.bound_to_seed:
        return passed(LARGEST_NAME)
    found = measurements_of(case)
    rollout, position = found.place(int(found.margins.argmax()))
    return measured(
        LARGEST_NAME,
        RejectReason.SAMPLING_MISMATCH,
        float(found.margins.max()),
        case.rules.thresholds.sampling_margin_max,
        num_audited=found.num_tokens,
        num_observations=found.num_tokens,
        detail=f"rollout {rollout}, token {position}" if found.margins.any() else "",
    )


def check_flips(case: Case) -> CheckResult:
    if not case.rules.sampling.bound_to_seed:
        return passed(FLIPS_NAME)
    found = measurements_of(case)
    num_flips, test = int((found.margins > 0).sum()), case.rules.thresholds.sampling_flips
    return counted(
        *(FLIPS_NAME, RejectReason.SAMPLING_MISMATCH, num_flips, found.num_tokens, test),
        detail=f"{num_flips} of {found.num_tokens} tokens",
    )


def check_ties(case: Case) -> CheckResult:
    """Flips among the near-ties only, where honest noise flips `near_tie_flip_rate` of them."""
    if not case.rules.sampling.bound_to_seed:
        return passed(TIES_NAME)
    found, limits = measurements_of(case), case.rules.thresholds
    is_near = _near_ties(found, limits.near_tie_nats)
    num_ties, num_flips = int(is_near.sum()), int((found.margins[is_near] > 0).sum())
    return counted(
        *(TIES_NAME, RejectReason.SAMPLING_MISMATCH, num_flips, num_ties, tie_test(limits)),
        detail=f"{num_flips} of {num_ties} near-ties",
    )


def check_sides(case: Case) -> CheckResult:
    """Flips to the likelier token against those to the less likely one.

    Rounding pushes both ways. Another temperature, top-p or a greedy sampler pushes all flips one way, and is told
    by a few dozen of them where so many flips are nothing unusual.
    """
    if not case.rules.sampling.bound_to_seed:
        return passed(SIDES_NAME)
    num_up, num_down = flip_sides(measurements_of(case))
    return counted(
        *(SIDES_NAME, RejectReason.SAMPLING_MISMATCH, max(num_up, num_down), num_up + num_down),
        test=side_test(case.rules.thresholds),
        detail=f"{num_up} of {num_up + num_down} flips to the likelier token",
    )


def flip_sides(found: Measurements) -> tuple[int, int]:
    """How many flips went to the likelier token, and how many to the less likely one."""
    gains = (found.logprobs - found.rows.drawn_logprobs)[found.margins > 0]
    return int((gains > 0).sum()), int((gains < 0).sum())


def check_freedom(case: Case) -> CheckResult:
    """Reported: bits per 1,000 tokens that a worker could choose without a refusal (`freedom_bits`)."""
    if not case.rules.sampling.bound_to_seed:
        return passed(FREEDOM_NAME)
    found = measurements_of(case)
    bits = freedom_bits(found, case.rules.thresholds)
    return passed(FREEDOM_NAME, value=1000 * bits / found.num_tokens, num_audited=found.num_tokens)


def freedom_bits(found: Measurements, limits: Thresholds) -> float:
    """At most how many bits the choices at near-ties hold: m · H(c / m), H the binary entropy.

    m tokens have a second best within `sampling_margin_max` (choosing it anywhere else is refused); of them c may be
    flipped before `sampling_flips` refuses, or `near_tie_flip_rate` where they are near-ties. m · H(c / m) is no less
    than log2 of the number of ways to flip c or fewer of m; from c = m / 2 on every choice is free, m bits.
    """
    reach = limits.sampling_margin_max.at(found.num_tokens).reject
    num_choosable = int(_near_ties(found, reach).sum())
    num_near = int(_near_ties(found, min(reach, limits.near_tie_nats)).sum())
    test = tie_test(limits)
    allowed_near = least_count(num_near, test.rate, test.reject) - 1
    allowed = least_count(found.num_tokens, limits.sampling_flips.rate, limits.sampling_flips.reject) - 1
    num_flips = min(allowed, allowed_near + num_choosable - num_near)
    return num_choosable * binary_entropy(min(num_flips / num_choosable, 0.5)) if num_choosable else 0.0


def tie_test(limits: Thresholds) -> FlipTest:
    """The flip test over near-ties: their own honest rate, the same false-positive rates."""
    return limits.sampling_flips.model_copy(update={"rate": limits.near_tie_flip_rate})


def side_test(limits: Thresholds) -> FlipTest:
    """The flip test over flips, by their side; half the false-positive rates, since there are two sides."""
    flips = limits.sampling_flips
    halved = {"reject": flips.reject / 2, "slash": flips.slash / 2}
    return flips.model_copy(update={"rate": limits.flip_side_rate, **halved})


def _near_ties(found: Measurements, nats: float) -> npt.NDArray[np.bool_]:
    return found.rows.runner_up_margins <= nats
