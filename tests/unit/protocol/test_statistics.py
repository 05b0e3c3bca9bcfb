"""Exact tails: against sums of fractions, and the least counts that follow from them."""

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.statistics import binary_entropy, binomial_tail, least_count


def exact_tail(num_trials: int, rate: Fraction, count: int) -> Fraction:
    terms = (comb(num_trials, k) * rate**k * (1 - rate) ** (num_trials - k) for k in range(count, num_trials + 1))
    return sum(terms, Fraction(0))


@given(st.integers(0, 60), st.integers(1, 999), st.integers(-1, 62))
def test_a_tail_is_the_sum_of_its_masses(num_trials: int, thousandths: int, count: int) -> None:
    expected = float(exact_tail(num_trials, Fraction(thousandths, 1000), max(0, count)))
    assert binomial_tail(num_trials, thousandths / 1000, count) == pytest.approx(expected, rel=1e-9, abs=1e-15)


@given(st.integers(0, 100_000), st.floats(1e-9, 0.999), st.floats(1e-12, 0.1))
def test_the_least_count_is_the_first_one_beyond(num_trials: int, rate: float, false_positive_rate: float) -> None:
    least = least_count(num_trials, rate, false_positive_rate)
    assert 0 < least <= num_trials + 1
    assert binomial_tail(num_trials, rate, least) < false_positive_rate <= binomial_tail(num_trials, rate, least - 1)


def test_few_flips_are_enough_where_honest_ones_are_rare() -> None:
    assert (least_count(1800, 1e-5, 1e-6), least_count(1800, 1e-5, 1e-9)) == (3, 5)


def test_what_no_count_reaches_isnt_refused() -> None:
    assert least_count(10, 0.5, 1e-6) == 11
    assert binomial_tail(10, 0.5, 11) == 0


@pytest.mark.parametrize(("rate", "count", "tail"), [(0.0, 1, 0.0), (1.0, 10, 1.0), (0.3, 0, 1.0)])
def test_certain_things_are_certain(rate: float, count: int, tail: float) -> None:
    assert binomial_tail(10, rate, count) == tail


def test_millions_of_trials_are_counted_at_once() -> None:
    assert binomial_tail(10_000_000, 0.5, 5_000_001) == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(("share", "bits"), [(0.0, 0.0), (0.5, 1.0), (1.0, 0.0)])
def test_the_entropy_of_a_choice(share: float, bits: float) -> None:
    assert binary_entropy(share) == bits
