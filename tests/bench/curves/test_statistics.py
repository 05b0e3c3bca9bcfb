"""Statistics against published tables of Student's t, and against curves whose areas are known."""

from __future__ import annotations

import statistics

import pytest

from tests.bench.curves.statistics import at, difference, height, mean_of, t_quantile, t_test


@pytest.mark.parametrize(
    ("freedom", "confidence", "t"), [(1, 0.95, 12.706), (4, 0.95, 2.776), (9, 0.95, 2.262), (4, 0.99, 4.604)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, confidence: float, t: float) -> None:
    assert t_quantile(confidence, freedom) == pytest.approx(t, abs=5e-4)
    assert t_test(t, freedom) == pytest.approx(1 - confidence, rel=1e-3)


def test_a_difference_that_every_seed_shows_is_told_from_one_that_none_does() -> None:
    base = [0.50, 0.52, 0.48, 0.51, 0.49]
    clear = difference([value + 0.1 + step for value, step in zip(base, (0, 0.01, -0.01, 0, 0), strict=True)], base)
    assert clear.value == pytest.approx(0.1)
    assert clear.low > 0.08 and clear.p < 0.001 and clear.num_pairs == 5
    noise = difference(base, [*base[1:], base[0]])
    assert noise.low < 0 < noise.high and noise.p > 0.5
    assert difference(base, base).p == 1.0


def test_the_error_is_of_the_mean_and_one_seed_has_none() -> None:
    assert mean_of([1.0, 3.0]).error == pytest.approx(1.0)
    with pytest.raises(statistics.StatisticsError):
        mean_of([1.0])


def test_a_height_is_between_any_two_places_that_the_curve_reaches() -> None:
    places, values = [0, 10, 30], [0.0, 1.0, 1.0]
    assert height(places, values, 0, 10) == pytest.approx(0.5)
    assert height(places, values, 0, 5) == pytest.approx(0.25)
    assert height(places, values, 0, 20) == pytest.approx(0.75)
    assert height(places, values, 5, 20) == pytest.approx((5 * 0.75 + 10) / 15)
    assert at(places, values, 5) == pytest.approx(0.5)
    for start, end in ((0, 31), (-1, 5), (5, 5)):
        with pytest.raises(ValueError, match="lies outside"):
            height(places, values, start, end)
