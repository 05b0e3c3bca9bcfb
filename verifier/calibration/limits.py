"""Limits from samples: for each, the rule that gave it and what it rests on.

In: honest `Samples`. Out: `Chosen`, the thresholds and a derivation a limit. False-positive targets, per submission:
1e-6 to refuse, 1e-9 to slash.

    means       a base, and room for what varies: `means.py`
    largest     1.5 · the tail over single rollouts, rare ones too, at target / rollouts a submission. A margin shows
                how far logits are off only where a tie is as near, a log-prob at every token: the wider of both
                tails bounds margins. A slash follows only where the common tail holds to its end, within the factor:
                what few values say isn't worth a stake
    flips       rates, and exact binomial tails: `flips.py`
    margins     clipped, and their mean: `margins.py`

Where honest work shows next to no deviation there is no tail to fit: a floor holds then, FLOORS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol.rules import Limit, Thresholds
from verifier.calibration.flips import flip_test, near_ties, side_rate
from verifier.calibration.floors import FLOORS, NEVER_SLASHED, REJECT_RATE, SLASH_RATE, at_least
from verifier.calibration.margins import MARGIN, margin_clip, margin_limit
from verifier.calibration.means import mean_limit
from verifier.calibration.samples import Samples
from verifier.calibration.tails import Tail, fit_far, fit_tail

LARGEST_FACTOR = 1.5

MEANS = ("toploc_exp_mismatch_share", "toploc_mantissa_mean", "logprob_error_mean")
LARGEST = ("sampling_margin_max", "logprob_error_max")
SHOWN_BY = {"sampling_margin_max": LARGEST, "logprob_error_max": ("logprob_error_max",)}
"""Whose tails bound it."""


@dataclass(frozen=True)
class Chosen:
    """Limits, and for each how it came about, as a JSON object."""

    thresholds: Thresholds
    derivations: dict[str, dict[str, Any]]


def choose_limits(samples: Samples, clip: float, group_size: int) -> Chosen:
    """Thresholds for honest samples like these; `samples` hold sizes from one rollout to a submission.

    `clip`: of margins, where there are too few flips to find one.
    """
    limits, derivations = {}, {}
    for name in MEANS:
        limits[name], derivations[name] = mean_limit(samples, name, group_size)
    for name in LARGEST:
        limits[name], derivations[name] = largest_limit(samples, name)
    flips, derivations["sampling_flips"] = flip_test(samples.of_size(1))
    clip, derivations["sampling_margin_clip"] = margin_clip(samples.of_size(1), clip)
    limits[MARGIN], derivations[MARGIN] = margin_limit(samples, clip, flips.rate, limits["sampling_margin_max"])
    nats, rate, derivations["near_ties"] = near_ties(samples.of_size(1))
    sides, derivations["flip_sides"] = side_rate(samples.of_size(1))
    thresholds = Thresholds(
        **limits,
        sampling_flips=flips,
        near_tie_nats=nats,
        near_tie_flip_rate=rate,
        flip_side_rate=sides,
        sampling_margin_clip=clip,
    )
    return Chosen(thresholds, derivations)


def largest_limit(samples: Samples, name: str) -> tuple[Limit, dict[str, Any]]:
    """For the largest of a submission's tokens: over R rollouts the chance is R times that of one."""
    num_rollouts = samples.sizes[-1]
    common, tail = _largest_tails(samples, name)
    reject, slash = (LARGEST_FACTOR * tail.beyond(rate / num_rollouts) for rate in (REJECT_RATE, SLASH_RATE))
    holds = common.method == "exponential" and reject <= LARGEST_FACTOR**2 * common.beyond(REJECT_RATE / num_rollouts)
    is_sure = holds or slash <= (FLOORS[name].slash or 0.0)
    limit = at_least(FLOORS[name], reject=reject, slash=slash if is_sure and name not in NEVER_SLASHED else None)
    tails = {"tail": tail.as_document(), "common_tail": common.as_document()}
    return limit, {"rule": "largest", "rollouts_a_submission": num_rollouts, **tails}


def _largest_tails(samples: Samples, name: str) -> tuple[Tail, Tail]:
    """Of single rollouts: the common one, and the one that bounds a submission."""
    alone, probability = samples.of_size(1), REJECT_RATE / samples.sizes[-1]
    tails = [fit_far(alone.column(n), probability, least=0.0, are_largest=True) for n in SHOWN_BY[name]]
    common = fit_tail(alone.column(name), least=0.0, are_largest=True)
    return common, max(tails, key=lambda tail: tail.beyond(probability))
