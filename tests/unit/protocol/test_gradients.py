"""Gradients written by hand are autograd's, and the values the same to the bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from protocol.gradients import gated, inverse_rms, normed, wide


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    values = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return values.to(dtype).requires_grad_()


def plain_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * (wide(x) * inverse_rms(x, eps)).to(x.dtype)


def plain_gate(gate: Tensor, up: Tensor) -> Tensor:
    return functional.silu(gate) * up


def test_gradients_are_those_of_finite_differences() -> None:
    assert torch.autograd.gradcheck(lambda x, w: normed(x, w, 0.1), (normal(3, 5), normal(5, seed=1)))
    assert torch.autograd.gradcheck(gated, (normal(3, 5), normal(3, 5, seed=1)))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_values_are_autograds_to_the_bit_and_gradients_as_near_as_the_type_allows(
    dtype: torch.dtype, tolerance: float
) -> None:
    pull = normal(7, 6, dtype=dtype, seed=2).detach()
    for by_hand, plain, shape in (
        (lambda x, w: normed(x, w, 1e-5), lambda x, w: plain_norm(x, w, 1e-5), (6,)),
        (gated, plain_gate, (7, 6)),
    ):
        ours = normal(7, 6, dtype=dtype), normal(*shape, dtype=dtype, seed=1)
        theirs = normal(7, 6, dtype=dtype), normal(*shape, dtype=dtype, seed=1)
        first, second = by_hand(*ours), plain(*theirs)
        assert torch.equal(first, second)
        first.backward(pull)
        second.backward(pull)
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.grad is not None and mine.grad.dtype == dtype
            torch.testing.assert_close(mine.grad, other.grad, rtol=tolerance, atol=tolerance)


def test_a_frozen_weight_gets_no_gradient() -> None:
    x, weight = normal(3, 5), normal(5).detach()
    normed(x, weight, 1e-5).sum().backward()
    assert x.grad is not None
    assert weight.grad is None
