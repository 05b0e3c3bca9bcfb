"""Gradients written by hand are autograd's, and so are the values: to the bit where the product is the same one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from protocol.gradients import gated, gated_linear, inverse_rms, linear, normed, normed_linears, wide
from protocol.products import LEAST_ROWS


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    values = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return values.to(dtype).requires_grad_()


def plain_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * (wide(x) * inverse_rms(x, eps)).to(x.dtype)


def plain_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.linear(x, weight, bias)


def plain_gate(gate: Tensor, up: Tensor) -> Tensor:
    return functional.silu(gate) * up


def plain_gated(gate: Tensor, up: Tensor, weight: Tensor) -> Tensor:
    return functional.linear(functional.silu(gate) * up, weight)


def both(x: Tensor, scale: Tensor, first: Tensor, bias: Tensor, second: Tensor) -> Tensor:
    return torch.cat(normed_linears(x, scale, 0.1, [(first, bias), (second, None)]), -1)


def plain_both(x: Tensor, scale: Tensor, first: Tensor, bias: Tensor, second: Tensor) -> Tensor:
    y = plain_norm(x, scale, 0.1)
    return torch.cat([functional.linear(y, first, bias), functional.linear(y, second)], -1)


PAIRS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "norm": (lambda x, w: normed(x, w, 0.1), lambda x, w: plain_norm(x, w, 0.1), [(6,)]),
    "linear": (linear, plain_linear, [(4, 6), (4,)]),
    "norm and linears": (both, plain_both, [(6,), (4, 6), (4,), (3, 6)]),
    "gate": (gated, plain_gate, [(0, 6)]),
    "gate and linear": (gated_linear, plain_gated, [(0, 6), (4, 6)]),
}
"""By hand, by autograd, and the shapes of what follows x [N, 6]; 0 stands for N."""


def arguments(name: str, num_rows: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    shapes = [(num_rows, 6), *((size or num_rows for size in shape) for shape in PAIRS[name][2])]
    return [normal(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    assert torch.autograd.gradcheck(PAIRS[name][0], arguments(name, 3))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(
    ("dtype", "num_rows", "tolerance"),
    [(torch.float32, 7, 1e-5), (torch.bfloat16, 7, 0.05), (torch.float32, 2 * LEAST_ROWS, 2e-5)],
)
def test_values_and_gradients_are_autograds(name: str, dtype: torch.dtype, num_rows: int, tolerance: float) -> None:
    by_hand, plain, _ = PAIRS[name]
    ours, theirs = arguments(name, num_rows, dtype), arguments(name, num_rows, dtype)
    first, second = by_hand(*ours), plain(*theirs)
    if num_rows < LEAST_ROWS:
        assert torch.equal(first, second)
    torch.testing.assert_close(first, second, rtol=tolerance, atol=tolerance)
    pull = normal(*first.shape, dtype=dtype, seed=9).detach()
    first.backward(pull)
    second.backward(pull)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.grad is not None and other.grad is not None and mine.grad.dtype == dtype
        scale = float(other.grad.abs().max())
        torch.testing.assert_close(mine.grad / scale, other.grad / scale, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", PAIRS)
def test_a_frozen_weight_gets_no_gradient_and_the_others_do(name: str) -> None:
    for frozen in range(1, len(arguments(name, 3))):
        given = arguments(name, 3)
        given[frozen] = given[frozen].detach()
        PAIRS[name][0](*given).sum().backward()
        assert [tensor.grad is None for tensor in given] == [index == frozen for index in range(len(given))]


@pytest.mark.parametrize(
    ("name", "num_kept"), [("norm", 1), ("norm and linears", 1), ("gate", 2), ("gate and linear", 2)]
)
def test_what_is_kept_of_each_row_is_what_came_in(name: str, num_kept: int) -> None:
    def kept_rows(call: Callable[..., Tensor]) -> int:
        sizes: dict[int, int] = {}
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.update({t.data_ptr(): t.numel()}), lambda t: t):
            call(*arguments(name, 50))
        return sum(size for size in sizes.values() if size >= 50 * 6) // (50 * 6)

    assert kept_rows(PAIRS[name][0]) == num_kept
    assert kept_rows(PAIRS[name][1]) > num_kept
