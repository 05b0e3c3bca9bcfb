"""The clip and the limit of the mean margin: rare far flips don't widen it, bunches do, and honest sums stay below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pytest

from protocol.rules import Limit
from verifier.calibration.floors import FLOORS
from verifier.calibration.journal import HONEST, Entry
from verifier.calibration.limits import choose_limits
from verifier.calibration.margins import MARGIN, margin_clip, margin_limit
from verifier.calibration.observe import Observation
from verifier.calibration.samples import Samples

Make = Callable[..., Observation]
Flips = Sequence[Sequence[float]]
UNCLIPPED = 10.0
NUM_TOKENS, RATE, SCALE = 32, 0.01, 0.02
"""Of one rollout: tokens, flips a token, and the flips' mean margin in nats."""
SIZES = (1, 2, 4, 8, 16, 32, 64)
FILE = 64 * NUM_TOKENS
SOME = Limit(reject=3.0)
"""Of the largest margin."""


def honest_flips(num_rollouts: int, seed: int = 5) -> list[list[float]]:
    """The margins of each rollout's flips: Poisson many, exponential each."""
    randomness = np.random.default_rng(seed)
    return [randomness.exponential(SCALE, n).tolist() for n in randomness.poisson(RATE * NUM_TOKENS, num_rollouts)]


def samples_of(make: Make, flips: Flips) -> Samples:
    """Rollouts with these flips, alone and pooled as a calibration pools them."""

    def rows() -> Iterator[Observation]:
        for size in SIZES:
            for start in range(0, len(flips) - size + 1, size):
                margins = tuple(m for one in flips[start : start + size] for m in one)
                yield make(
                    num_rollouts=size,
                    num_tokens=size * NUM_TOKENS,
                    num_flips=len(margins),
                    flip_margins=margins,
                    sampling_margin_mean=sum(margins) / size / NUM_TOKENS,
                    sampling_margin_max=max(margins, default=0.0),
                )

    return Samples.of([Entry(HONEST, 0, "torch", "torch", tuple(rows()))])


def allowed(samples: Samples, clip: float, rate: float = 1.5 * RATE) -> float:
    """How many nats a file of 64 rollouts may come to, a flip counted up to `clip`."""
    return margin_limit(samples, clip, rate, SOME)[0].at(FILE).reject * FILE


def come_to(flips: Iterable[Sequence[float]], clip: float) -> float:
    return sum(min(margin, clip) for one in flips for margin in one)


def test_honest_sums_stay_below_and_another_samplers_do_not(make_observation: Make) -> None:
    samples = samples_of(make_observation, honest_flips(3_200))
    limits = choose_limits(samples, UNCLIPPED, 8).thresholds
    clip, limit = limits.sampling_margin_clip, limits.sampling_margin_mean.at(FILE)
    assert limit.slash is not None
    assert limit.reject < limit.slash
    fresh = honest_flips(64 * 500, seed=6)
    files = [come_to(fresh[start : start + 64], clip) for start in range(0, len(fresh), 64)]
    assert max(files) < limit.reject * FILE < max(files) + 20 * clip
    # Twenty flips of another sampler on top, ten times as far as rounding's.
    other = np.random.default_rng(7).exponential(10 * SCALE, 20).tolist()
    assert min(files) + come_to([other], clip) > limit.reject * FILE


def test_the_clip_holds_nearly_all_honest_flips(make_observation: Make) -> None:
    flips = honest_flips(3_200)
    clip, derivation = margin_clip(samples_of(make_observation, flips).of_size(1), UNCLIPPED)
    margins = [m for one in flips for m in one]
    assert sum(m > clip for m in margins) < len(margins) / 500
    assert clip == pytest.approx(1.5 * SCALE * np.log(1_000), rel=0.25)
    assert derivation["num_flips"] == len(margins)


def test_few_flips_say_nothing_of_a_clip(make_observation: Make) -> None:
    few = samples_of(make_observation, [[0.02]] * 99 + [[]] * 29).of_size(1)
    enough = samples_of(make_observation, [[0.02]] * 100 + [[]] * 28).of_size(1)
    assert margin_clip(few, UNCLIPPED)[0] == UNCLIPPED
    assert margin_clip(enough, UNCLIPPED)[0] < 0.1


def test_rare_far_flips_do_not_widen_what_is_clipped(make_observation: Make) -> None:
    """One rollout in a thousand has a flip as large as the flips of a whole file together."""
    common = honest_flips(3_200)
    rare = [one + [2.0] if place % 1_000 == 0 else one for place, one in enumerate(common)]
    before, after = samples_of(make_observation, common), samples_of(make_observation, rare)
    clip, _ = margin_clip(before.of_size(1), UNCLIPPED)
    assert margin_clip(after.of_size(1), UNCLIPPED)[0] < 1.2 * clip
    assert allowed(after, clip) < 1.5 * allowed(before, clip)
    assert allowed(after, UNCLIPPED) > 3 * allowed(before, clip)


def test_flips_that_come_in_bunches_get_more_room(make_observation: Make) -> None:
    """As many flips of the same margins: spread over all rollouts, or eight in each of a few."""
    spread = samples_of(make_observation, [[0.05], [], [], [], [], [], [], []] * 400)
    bunched = samples_of(make_observation, ([[0.05] * 8] + [[]] * 63) * 50)
    assert allowed(bunched, 0.2) > 1.2 * allowed(spread, 0.2)


def test_what_few_tokens_do_not_show_gets_room(make_observation: Make) -> None:
    many, few = (samples_of(make_observation, honest_flips(n)) for n in (3_200, 256))
    assert allowed(few, 0.2) > 1.2 * allowed(many, 0.2)


def test_the_rate_of_the_flip_test_widens_it(make_observation: Make) -> None:
    samples = samples_of(make_observation, honest_flips(3_200))
    assert allowed(samples, 0.2, rate=3 * RATE) > allowed(samples, 0.2, rate=1.5 * RATE)


def test_without_flips_or_with_tiny_ones_the_floor_holds(make_observation: Make) -> None:
    none = samples_of(make_observation, [[]] * 128)
    tiny = samples_of(make_observation, [[1e-5]] + [[]] * 3_199)
    assert margin_limit(none, UNCLIPPED, 1e-5, SOME)[0] == FLOORS[MARGIN]
    assert margin_limit(tiny, UNCLIPPED, 1e-5, Limit(reject=0.002))[0] == FLOORS[MARGIN]
    assert margin_limit(tiny, UNCLIPPED, 1e-5, SOME)[0].burst > FLOORS[MARGIN].burst
