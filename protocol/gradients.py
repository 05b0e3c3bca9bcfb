"""Gradients written by hand where autograd would keep more numbers, or go over them more often, than it must.

In: what `protocol/forward.py` computes between its matrix products. Out: the same values to the bit, with backward
passes of their own. A model without gradients doesn't come here.

    y = x / rms(x) · w      keeps x; x̂ is made again       dx = (g·w − x̂ · mean(g·w·x̂)) / rms(x)
    y = silu(a) · b         keeps a and b; silu is made again
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) · weight over the last dimension of x [N, H], in x's type."""
    y: Tensor = _Normed.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    return y


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up, element by element."""
    y: Tensor = _Gated.apply(gate, up)  # type: ignore[no-untyped-call]
    return y


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        inverse = inverse_rms(x, eps)
        ctx.save_for_backward(x, weight, inverse)
        return weight * (wide(x) * inverse).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, inverse = ctx.saved_tensors
        pull, scale = wide(gradients[0]), wide(weight)
        normal = wide(x) * inverse
        product = pull * normal
        to_weight = product.sum(0) if ctx.needs_input_grad[1] else None
        to_x = pull * scale
        to_x -= normal.mul_((product @ scale / x.shape[-1])[:, None])
        to_x *= inverse
        return to_x.to(x.dtype), None if to_weight is None else to_weight.to(weight.dtype), None


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return functional.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        (pull,) = gradients
        return torch.ops.aten.silu_backward(pull * up, gate), functional.silu(gate).mul_(pull)


def inverse_rms(x: Tensor, eps: float) -> Tensor:
    """1 / rms over the last dimension, [..., 1], in float32 (float64 stays)."""
    # The norm reads x once; squares that are then averaged are written and read again.
    mean_square = torch.linalg.vector_norm(wide(x), dim=-1, keepdim=True).square() / x.shape[-1]
    return torch.rsqrt(mean_square + eps)


def wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
