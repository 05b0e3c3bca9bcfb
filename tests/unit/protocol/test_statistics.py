"""Exact tails: against sums of fractions, and the least counts that follow from them."""

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.statistics import binary_entropy, binomial_tail, least_count


def exact_tail(num_trials: int, rate: Fraction, count: int, num_terms: int | None = None) -> Fraction:
    """In integers over the common denominator; the first `num_terms` only, where the others are as good as none."""
    hit, whole = rate.numerator, rate.denominator
    last = num_trials if num_terms is None else min(num_trials, count + num_terms)
    terms = (comb(num_trials, k) * hit**k * (whole - hit) ** (num_trials - k) for k in range(count, last + 1))
    return Fraction(sum(terms), whole**num_trials)


@given(st.integers(0, 60), st.integers(1, 999), st.integers(-1, 62))
def test_a_tail_is_the_sum_of_its_masses(num_trials: int, thousandths: int, count: int) -> None:
    expected = float(exact_tail(num_trials, Fraction(thousandths, 1000), max(0, count)))
    assert binomial_tail(num_trials, thousandths / 1000, count) == pytest.approx(expected, rel=1e-9, abs=1e-15)


@given(st.integers(1, 400), st.integers(1, 200), st.data())
def test_the_least_tails_are_as_exact(num_trials: int, thousandths: int, data: st.DataObject) -> None:
    """Down to 1e-30 and far beyond: relative to what it is, not to 1."""
    mean = num_trials * thousandths // 1000
    count = data.draw(st.integers(min(mean + 1, num_trials), num_trials))
    exact = exact_tail(num_trials, Fraction(thousandths, 1000), count)
    assert binomial_tail(num_trials, thousandths / 1000, count) == pytest.approx(float(exact), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("count", [4, 8, 12, 14])
def test_tails_down_to_one_in_ten_to_the_thirtieth(count: int) -> None:
    exact = exact_tail(2000, Fraction(1, 100_000), count, num_terms=20)
    assert (count < 14) == (exact > Fraction(1, 10**33))
    assert binomial_tail(2000, 1e-5, count) == pytest.approx(float(exact), rel=1e-11)


@given(st.integers(0, 5000), st.floats(1e-6, 0.999), st.integers(0, 5000))
def test_a_tail_falls_with_the_count_and_grows_with_the_rate(num_trials: int, rate: float, count: int) -> None:
    here = binomial_tail(num_trials, rate, count)
    assert 0 <= binomial_tail(num_trials, rate, count + 1) <= here * (1 + 1e-9) + 1e-15
    assert here <= binomial_tail(num_trials, min(1.0, rate * 1.01), count) * (1 + 1e-9) + 1e-15
    assert here <= binomial_tail(num_trials + 1, rate, count) * (1 + 1e-9) + 1e-15


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
