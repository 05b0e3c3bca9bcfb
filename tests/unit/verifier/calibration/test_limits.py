"""Limits from samples: they cover what they were made of, shrink with the sample, and fall back to floors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from protocol.rules import Limit
from verifier.calibration.flips import FLIP_RATE_FLOOR, TIE_NATS_FLOOR, expected_rate, side_rate, upper_rate
from verifier.calibration.floors import FLOORS
from verifier.calibration.journal import HONEST, Entry
from verifier.calibration.limits import LARGEST, MEANS, choose_limits, largest_limit
from verifier.calibration.margins import MARGIN
from verifier.calibration.observe import TIE_NATS, Observation
from verifier.calibration.samples import Samples

Make = Callable[..., Observation]
SIZES = (1, 2, 4, 8)
SHARE, NUM_VALUES = 0.01, 128


def samples_of(rows: Iterator[Observation]) -> Samples:
    return Samples.of([Entry(HONEST, 0, "torch", "torch", tuple(rows))])


def noisy(make: Make, num_submissions: int) -> Iterator[Observation]:
    """Exponents that differ in one of a hundred values, pooled over 1 to 8 rollouts of a chunk each."""
    randomness = np.random.default_rng(3)
    for _ in range(num_submissions):
        shares = randomness.binomial(NUM_VALUES, SHARE, SIZES[-1]) / NUM_VALUES
        for size in SIZES:
            for part in shares.reshape(-1, size):
                yield make(
                    num_rollouts=size,
                    num_chunks=size,
                    num_tokens=32 * size,
                    toploc_exp_mismatch_share=float(part.mean()),
                )


def test_a_mean_has_less_room_the_more_it_is_over(make_observation: Make) -> None:
    limit = choose_limits(samples_of(noisy(make_observation, 200)), 10.0, 4).thresholds.toploc_exp_mismatch_share
    assert limit.slash is not None
    assert SHARE < limit.reject < limit.slash < 3 * SHARE
    for size in SIZES:
        # 1e-6 of binomials of so many values is about 5 to 7 deviations out.
        deviation = (SHARE * (1 - SHARE) / NUM_VALUES / size) ** 0.5
        assert SHARE + 5 * deviation < limit.at(size).reject
    assert limit.at(64).reject < 3 * SHARE


def test_limits_cover_all_that_they_were_made_of(make_observation: Make) -> None:
    samples = samples_of(noisy(make_observation, 100))
    limit = choose_limits(samples, 10.0, 4).thresholds.toploc_exp_mismatch_share
    for observation in samples.observations:
        assert observation.toploc_exp_mismatch_share < limit.at(observation.num_chunks).reject


def test_where_nothing_deviates_the_floors_hold(make_observation: Make) -> None:
    chosen = choose_limits(samples_of(make_observation(num_rollouts=s) for s in (1, 1, 1, 1, 4)), 10.0, 4)
    for name in (*MEANS, *LARGEST, MARGIN):
        assert getattr(chosen.thresholds, name) == FLOORS[name]
    assert chosen.thresholds.sampling_flips.rate == FLIP_RATE_FLOOR
    assert chosen.thresholds.near_tie_nats == TIE_NATS_FLOOR


def test_floors_let_a_lone_chunk_round_one_value_the_other_way() -> None:
    for name in ("toploc_exp_mismatch_share", "toploc_mantissa_mean"):
        assert FLOORS[name].at(1).reject > 1 / 128


def test_the_worst_pairing_decides(make_observation: Make) -> None:
    good, bad = (
        Entry(HONEST, 0, name, "torch", tuple(make_observation(num_rollouts=s, logprob_error_mean=e) for s in (1, 4)))
        for name, e in (("good", 0.001), ("bad", 0.02))
    )
    chosen = choose_limits(Samples.of([good, bad]), 10.0, 4)
    assert chosen.thresholds.logprob_error_mean.reject == pytest.approx(0.03)
    assert chosen.thresholds.logprob_error_mean.slash is None
    assert chosen.derivations["logprob_error_mean"]["worst_pairing"] == ["bad", "torch"]


def test_flips_set_the_rate_and_bunches_raise_it(make_observation: Make) -> None:
    def rate(flips: list[int]) -> float:
        rows = [make_observation(num_flips=n) for n in flips] + [make_observation(num_rollouts=4)]
        return choose_limits(samples_of(iter(rows)), 10.0, 4).thresholds.sampling_flips.rate

    spread, bunched = rate([1, 0, 0, 0] * 50), rate(([8] + [0] * 31) * 6 + [2, 0, 0, 0, 0, 0, 0, 0])
    assert 1 / 128 < spread < 3 / 128
    assert bunched > 2 * spread


def test_near_ties_are_where_honest_flips_are(make_observation: Make) -> None:
    index = TIE_NATS.index(0.01)
    ties = tuple(10 if i >= index else 1 for i in range(len(TIE_NATS)))
    flips = tuple(3 if i >= index else 0 for i in range(len(TIE_NATS)))
    rows: list[Any] = [make_observation(num_flips=3, num_ties=ties, num_tie_flips=flips) for _ in range(100)]
    thresholds = choose_limits(samples_of(iter([*rows, make_observation(num_rollouts=4)])), 10.0, 4).thresholds
    assert thresholds.near_tie_nats == 0.01
    assert 0.3 < thresholds.near_tie_flip_rate < 0.6


def test_without_a_flip_the_density_of_ties_tells_the_rate(make_observation: Make) -> None:
    ties = tuple(round(1000 * nats) for nats in TIE_NATS)
    rows = [make_observation(num_tokens=100, num_ties=ties, logprob_error_max=1e-5) for _ in range(50)]
    assert expected_rate(samples_of(iter(rows))) == pytest.approx(2e-5 * 10, rel=0.2)


def largest_of(make: Make, values: Iterable[float]) -> Samples:
    """Single rollouts whose largest margin is each of these, and a submission of 64."""
    rows = [make(sampling_margin_max=float(value)) for value in values]
    return samples_of(iter([*rows, make(num_rollouts=64)]))


def test_a_slash_rests_on_a_largest_value_only_where_its_tail_is_sure(make_observation: Make) -> None:
    randomness = np.random.default_rng(11)
    common = randomness.exponential(0.05, 20_000)
    rare = np.concatenate([common, 0.3 + randomness.exponential(0.3, 20)])
    sure, _ = largest_limit(largest_of(make_observation, common), "sampling_margin_max")
    unsure, derivation = largest_limit(largest_of(make_observation, rare), "sampling_margin_max")
    assert sure.slash is not None
    assert unsure.slash is None
    assert unsure.reject > 1.5 * sure.reject
    assert derivation["tail"]["method"] == "far"


def test_a_margin_has_the_room_that_log_probs_show_to_be_needed(make_observation: Make) -> None:
    """One rollout in a thousand has log-probs off by a nat, but no tie as near: its margins don't show it."""
    randomness = np.random.default_rng(4)
    margins, errors = randomness.exponential(0.02, 20_000), randomness.exponential(0.03, 20_000)
    errors[:20] += randomness.exponential(1.0, 20)
    rows = [
        make_observation(sampling_margin_max=float(m), logprob_error_max=float(e))
        for m, e in zip(margins, errors, strict=True)
    ]
    samples = samples_of(iter([*rows, make_observation(num_rollouts=64)]))
    alone, _ = largest_limit(largest_of(make_observation, margins), "sampling_margin_max")
    both, _ = largest_limit(samples, "sampling_margin_max")
    assert alone.reject < 1 < errors.max() < both.reject
    assert both.reject == largest_limit(samples, "logprob_error_max")[0].reject


def test_few_rollouts_slash_nobody_by_their_largest_value_unless_it_is_far_below_the_floor(
    make_observation: Make,
) -> None:
    def limit(scale: float) -> Limit:
        values = np.random.default_rng(2).exponential(scale, 200)
        return largest_limit(largest_of(make_observation, values), "sampling_margin_max")[0]

    assert limit(0.05).slash is None
    assert limit(1e-5) == FLOORS["sampling_margin_max"]


def test_flips_have_no_side_unless_they_lean_beyond_chance(make_observation: Make) -> None:
    def rate(num_up: int, num_down: int) -> float:
        flips = {"num_flips": num_up + num_down, "num_flips_up": num_up, "num_flips_down": num_down}
        return side_rate(samples_of(iter([make_observation(**flips)])))[0]

    assert rate(0, 0) == rate(9, 3) == rate(520, 480) == 0.75
    assert 0.83 < rate(550, 450) < 0.9
    assert rate(450, 550) == rate(550, 450)
    assert rate(95, 5) == 0.9


def test_one_pairing_whose_flips_lean_raises_the_side_rate(make_observation: Make) -> None:
    even, leaning = (
        Entry(HONEST, 0, name, "torch", (make_observation(num_flips_up=up, num_flips_down=100 - up),))
        for name, up in (("even", 48), ("leaning", 75))
    )
    assert side_rate(Samples.of([even, even]))[0] == 0.75
    assert side_rate(Samples.of([even, leaning]))[0] == 0.9


def test_the_bound_of_a_rate() -> None:
    assert upper_rate(0, 1_000) == pytest.approx(5.4e-3, rel=0.05)
    assert 0.01 < upper_rate(100, 10_000) < 0.013
    assert upper_rate(0, 0) == 1.0
