"""Fitted tails: what they say lies beyond what was seen, on samples whose tails are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from verifier.calibration.tails import MIN_FAR, MIN_SAMPLES, Floats, fit_far, fit_tail

RARE = 1e-6 / 64
"""What a largest value is extrapolated to: a submission in a million, of 64 rollouts."""


@pytest.fixture
def randomness() -> np.random.Generator:
    return np.random.default_rng(7)


def test_an_exponential_tail_is_found_and_extrapolated(randomness: np.random.Generator) -> None:
    tail = fit_tail(randomness.exponential(2.0, 20_000))
    assert tail.method == "exponential"
    assert tail.distance < tail.critical
    for probability in (1e-6, 1e-9):
        assert tail.beyond(probability) == pytest.approx(-2.0 * math.log(probability), rel=0.1)


def test_a_normal_tail_is_covered(randomness: np.random.Generator) -> None:
    """Lighter than exponential: the bound is beyond the true quantile, 4.75 deviations."""
    tail = fit_tail(randomness.normal(0.0, 1.0, 20_000))
    assert tail.method == "exponential"
    assert tail.shape < 0
    assert 4.75 < tail.beyond(1e-6) < 8


def test_a_heavy_tail_is_told_from_an_exponential_one(randomness: np.random.Generator) -> None:
    tail = fit_tail(randomness.pareto(3.0, 20_000))
    assert tail.method == "widened"
    assert tail.shape > 2 * tail.shape_error


def test_a_tail_that_ends_is_lighter_whatever_its_form_and_not_widened(randomness: np.random.Generator) -> None:
    """Uniform in steps: no exponential, but one of the same mean is farther out than it ever gets."""
    samples = np.round(randomness.random(20_000), 2)
    tail = fit_tail(samples)
    assert tail.distance > tail.critical
    assert tail.method == "exponential"
    assert tail.beyond(1e-6) > 1


def test_a_tail_behind_a_hump_is_looked_for_farther_out(randomness: np.random.Generator) -> None:
    """Nine of ten are small, the rest exponential: the lowest threshold lies between, a higher one fits."""
    samples = np.concatenate([randomness.exponential(0.01, 17_000), randomness.exponential(1.0, 3_000)])
    tail = fit_tail(samples)
    assert tail.method == "exponential"
    assert tail.beyond(1e-6) == pytest.approx(math.log(0.15 / 1e-6), rel=0.2)


def test_few_samples_get_a_widened_normal_bound(randomness: np.random.Generator) -> None:
    tail = fit_tail(randomness.normal(1.0, 0.5, 40))
    assert tail.method == "normal"
    assert tail.beyond(1e-6) > 1.0 + 4.75 * 0.5 * 0.8
    assert tail.beyond(1e-9) > tail.beyond(1e-6)


def test_what_never_deviates_has_no_tail_and_what_hardly_does_a_wide_one() -> None:
    samples = np.zeros(MIN_SAMPLES)
    assert fit_tail(samples).method == "none"
    assert fit_tail(samples).beyond(1e-9) == 0.0
    samples[3] = 0.25
    tail = fit_tail(samples)
    assert tail.method == "few"
    assert 1.0 < tail.beyond(1e-9) < 10.0


def with_a_rare_tail(randomness: np.random.Generator, num_samples: int, share: float) -> Floats:
    """Exponential of 0.025, and a few of 0.2: what bfloat16 does to the largest error of a rollout."""
    scales = np.where(randomness.random(num_samples) < share, 0.2, 0.025)
    return randomness.exponential(scales)


def test_a_rare_second_tail_is_seen_where_a_fit_to_the_common_one_is_blind(randomness: np.random.Generator) -> None:
    samples = with_a_rare_tail(randomness, 100_000, share=5e-4)
    truly = 0.2 * math.log(5e-4 / RARE)
    common, far = fit_tail(samples), fit_far(samples, RARE)
    assert common.beyond(RARE) < truly / 2
    assert far.method == "far"
    assert truly < far.beyond(RARE) < 3 * truly


def test_few_rollouts_cant_show_a_rare_tail_and_say_nothing_of_it(randomness: np.random.Generator) -> None:
    """4,000 samples hold two of it: the far quantile with enough of them is the common tail's."""
    samples = with_a_rare_tail(randomness, 4_000, share=5e-4)
    assert fit_far(samples, RARE).beyond(RARE) < 0.2 * math.log(5e-4 / RARE) / 1.5


@pytest.mark.parametrize("seed", range(8))
def test_a_plain_exponential_is_hardly_inflated(seed: int) -> None:
    samples = np.random.default_rng(seed).exponential(0.025, 100_000)
    truly = -0.025 * math.log(RARE)
    assert truly < fit_far(samples, RARE).beyond(RARE) < 1.5 * truly


def test_a_far_tail_is_looked_for_where_enough_values_exceed_it(randomness: np.random.Generator) -> None:
    samples = with_a_rare_tail(randomness, 50_000, share=1e-3)
    far = fit_far(samples, RARE)
    assert far.method == "far"
    assert far.share * len(samples) >= MIN_FAR
    few = randomness.exponential(1.0, MIN_SAMPLES - 1)
    few[:MIN_FAR] += 20
    assert fit_far(few, RARE) == fit_tail(few)
    assert fit_far(np.zeros(MIN_SAMPLES), RARE).method == "none"


def test_quantiles_rise_with_rarity(randomness: np.random.Generator) -> None:
    for samples in (randomness.exponential(1.0, 5_000), randomness.normal(0, 1, 50)):
        tail = fit_tail(samples)
        beyond = [tail.beyond(10.0**-power) for power in range(1, 13)]
        assert beyond == sorted(beyond)
