"""Arithmetic that kernels share, against numpy's and torch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from protocol import kernel_arithmetic as arithmetic
from protocol.kernels import helper

LARGEST_BF16 = torch.finfo(torch.bfloat16).max


@helper
def rounded(x: np.float32) -> np.float32:
    nearest: np.float32 = arithmetic.as_bf16(x)
    return nearest


@helper
def exp_32(x: np.float32) -> np.float32:
    found: np.float32 = arithmetic.exp_32(x)
    return found


@helper
def bits_and_back(x: float) -> float:
    same: float = arithmetic.float_64(arithmetic.bits_64(x))
    return same


@helper
def bits_and_back_32(x: np.float32) -> np.float32:
    same: np.float32 = arithmetic.float_32(arithmetic.bits_32(x))
    return same


@pytest.mark.parametrize("x", [0.0, -0.0, 1e-30, -1e-30, 1.0, -1.0, 0.3465, -0.3466, 20.5, 88.0, -86.9])
def test_exponentials_are_near_the_true_ones(x: float) -> None:
    assert arithmetic.exp_64(x) == pytest.approx(np.exp(x), rel=2e-14)
    assert exp_32(np.float32(x)) == pytest.approx(np.exp(np.float64(np.float32(x))), rel=3e-7)


def test_exponentials_are_near_the_true_ones_everywhere() -> None:
    for x in np.random.default_rng(0).uniform(-87, 88, 2000):
        assert arithmetic.exp_64(x) == pytest.approx(np.exp(x), rel=2e-14)
        assert exp_32(np.float32(x)) == pytest.approx(np.exp(np.float64(np.float32(x))), rel=3e-7)
    for x in np.random.default_rng(1).uniform(-708, 709, 2000):
        assert arithmetic.exp_64(x) == pytest.approx(np.exp(x), rel=2e-14)


@pytest.mark.parametrize("x", [-709.0, -1e4, -1e30, -np.inf])
def test_what_is_too_small_counts_as_the_least(x: float) -> None:
    assert arithmetic.exp_64(x) == arithmetic.exp_64(arithmetic.LEAST_EXPONENT_64) > 0
    assert exp_32(np.float32(x)) == exp_32(np.float32(arithmetic.LEAST_EXPONENT_32)) > 0


def test_the_next_smaller_exponents_count_for_themselves() -> None:
    assert arithmetic.exp_64(-707.0) > arithmetic.exp_64(-708.0)
    assert exp_32(np.float32(-86.0)) > exp_32(np.float32(-87.0))


@pytest.mark.parametrize("x", [0.0, 1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -3.14159, 1e-39, LARGEST_BF16])
def test_bfloat16_is_the_nearest_with_ties_to_even(x: float) -> None:
    assert rounded(np.float32(x)) == torch.tensor(x, dtype=torch.float32).bfloat16().item()


def test_rounding_to_bfloat16_changes_what_it_cant_hold() -> None:
    assert rounded(np.float32(1 + 2**-7)) == 1 + 2**-7
    assert rounded(np.float32(1 + 2**-9)) == 1


@pytest.mark.parametrize("x", [0.0, 1.5, -2.25, np.inf])
def test_bits_are_those_of_the_number(x: float) -> None:
    assert bits_and_back(x) == bits_and_back_32(np.float32(x)) == x


def test_sums_in_any_order_are_near_the_exact_one() -> None:
    @arithmetic.summing
    def total(row: np.typing.NDArray[np.float64]) -> float:
        found = 0.0
        for i in range(row.shape[0]):
            found += row[i]
        return found

    row = np.random.default_rng(0).random(1001)
    assert total(row) == pytest.approx(row.sum(), rel=1e-12)
    assert total(row[:0]) == 0


def test_a_fused_product_and_sum_is_one_of_the_two_roundings() -> None:
    @arithmetic.fused
    def product_and_sum(a: float, b: float, c: float) -> float:
        return a * b + c

    assert product_and_sum(1 + 2**-30, 1 + 2**-30, -1.0) in (2**-29, 2**-29 + 2**-60)
