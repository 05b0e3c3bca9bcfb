"""GF(65497), the modulus rule and the two tie rules, against plain-Python and torch oracles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.toploc.field import PRIME, evaluate, interpolate
from protocol.toploc.modulus import injective_moduli, least_modulus
from protocol.toploc.topk import BF16_INFINITY, select


def horner(coefficients: list[float], x: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + int(coefficient)) % PRIME
    return value


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, PRIME - 1), min_size=1, max_size=150))
def test_the_polynomial_goes_through_its_points(xs: set[int]) -> None:
    x = np.array(sorted(xs), dtype=np.float64)[None]
    y = np.random.default_rng(len(xs)).integers(0, PRIME, x.shape).astype(np.float64)
    coefficients = interpolate(x, y)
    assert [horner(coefficients[0].tolist(), int(v)) for v in x[0]] == y[0].tolist()
    assert (evaluate(coefficients, x) == y).all()


def test_extreme_values_stay_exact() -> None:
    """All residues at p - 1, where sums of products are largest."""
    coefficients = np.full((1, 4096), PRIME - 1.0)
    x = np.array([[PRIME - 1.0, PRIME - 2.0, 1.0, 0.0]])
    assert evaluate(coefficients, x)[0].tolist() == [horner(coefficients[0].tolist(), int(v)) for v in x[0]]


def test_two_points_at_one_x_are_refused() -> None:
    with pytest.raises(ValueError, match="share their x"):
        interpolate(np.array([[5.0, 5.0]]), np.array([[1.0, 2.0]]))


def test_chunks_of_a_batch_dont_mix() -> None:
    rng = np.random.default_rng(1)
    x = np.stack([rng.permutation(PRIME)[:16] for _ in range(70)]).astype(np.float64)
    y = rng.integers(0, PRIME, x.shape).astype(np.float64)
    one_by_one = np.concatenate([interpolate(x[i : i + 1], y[i : i + 1]) for i in range(70)])
    assert (interpolate(x, y) == one_by_one).all()


def test_the_modulus_is_the_largest_that_keeps_indices_apart() -> None:
    rng = np.random.default_rng(2)
    indices = np.stack([rng.permutation(163_840)[:128] for _ in range(60)])
    moduli = injective_moduli(indices)
    for row, modulus in zip(indices, moduli, strict=True):
        assert len(set(row % modulus)) == 128
        assert all(len(set(row % m)) < 128 for m in range(modulus + 1, PRIME + 1))
    assert (moduli < PRIME).any()


def test_the_modulus_of_a_small_chunk_is_the_prime() -> None:
    assert injective_moduli(np.array([[0, PRIME - 1]])).tolist() == [PRIME] == [least_modulus(PRIME, 128)]


def test_an_index_that_is_there_twice_has_no_modulus() -> None:
    with pytest.raises(ValueError, match="twice"):
        injective_moduli(np.array([[3, 4, 3]]))


def test_the_least_modulus_of_a_large_chunk_leaves_room_for_collisions() -> None:
    assert least_modulus(PRIME + 1, 128) == 2**15
    assert least_modulus(PRIME + 1, 2048) == 2048


SHAPES = [(3, 4096, 128), (2, 65536, 128), (4, 300, 7), (5, 128, 128), (3, 5000, 16), (2, 40_000, 100)]


def make_bits(seed: int, num_rows: int, num_elements: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    """bf16 normals; every other row quantised, so that nearly everything ties, and a few NaNs in the first."""
    values = np.random.default_rng(seed).standard_normal((num_rows, num_elements)).astype(np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    bits[1::2] &= 0xFFC0
    bits[0, ::97] = 0x7FC0 + np.arange(len(bits[0, ::97])) % 7
    return bits


@pytest.mark.parametrize(("num_rows", "num_elements", "topk"), SHAPES)
def test_lowest_ties_keep_the_lower_index(num_rows: int, num_elements: int, topk: int) -> None:
    bits = make_bits(3, num_rows, num_elements)
    magnitudes = np.minimum(bits & 0x7FFF, BF16_INFINITY + 1).astype(np.int64)
    expected = np.argsort(-magnitudes, axis=1, kind="stable")[:, :topk]
    assert (np.sort(select(bits, topk), axis=1) == np.sort(expected, axis=1)).all()


@pytest.mark.parametrize(("num_rows", "num_elements", "topk"), SHAPES)
def test_torch_ties_keep_what_torch_keeps(num_rows: int, num_elements: int, topk: int) -> None:
    bits = make_bits(4, num_rows, num_elements)
    expected = torch.from_numpy(bits).view(torch.bfloat16).abs().topk(topk, dim=1).indices.numpy()
    assert (np.sort(select(bits, topk, "torch-cpu"), axis=1) == np.sort(expected, axis=1)).all()


@pytest.mark.parametrize("topk", [0, -1, 9])
def test_a_chunk_with_fewer_values_than_asked_for_is_refused(topk: int) -> None:
    with pytest.raises(ValueError, match="topk"):
        select(np.zeros((1, 8), dtype=np.uint16), topk)
