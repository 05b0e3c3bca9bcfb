"""Gradients written by hand where autograd would keep more numbers, or go over them more often, than it must.

In: what `protocol/forward.py` computes between its matrix products. Out: the same values to the bit, with backward
passes of their own. A model without gradients doesn't come here.

    y = x / rms(x) · w          keeps x; x̂ is made again       dx = (g·w − x̂ · mean(g·w·x̂)) / rms(x)
    y = x · Wᵀ + b              keeps x                         dx = g · W        dW = gᵀ · x
    y_i = norm(x) · W_iᵀ + b_i  keeps x; what is multiplied with W_i is made again
    y = silu(a) · b             keeps a and b; silu is made again
    y = (silu(a) · b) · Wᵀ      keeps a and b; the same
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from protocol.products import product, summed_outer

Weights = tuple[Tensor, Tensor | None]
"""Of a linear layer: [M, K], and [M] where it has a bias."""


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) · weight over the last dimension of x [N, H], in x's type."""
    y: Tensor = _Normed.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    return y


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x · weightᵀ + bias, [N, K] to [N, M]."""
    y: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return y


def normed_linears(x: Tensor, scale: Tensor, eps: float, layers: Sequence[Weights]) -> tuple[Tensor, ...]:
    """`linear` of `normed(x, scale, eps)` for each layer's weights, each [N, M]."""
    flat = [tensor for layer in layers for tensor in layer]
    found: tuple[Tensor, ...] = _NormedLinears.apply(x, scale, eps, *flat)  # type: ignore[no-untyped-call]
    return found


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up, element by element."""
    y: Tensor = _Gated.apply(gate, up)  # type: ignore[no-untyped-call]
    return y


def gated_linear(gate: Tensor, up: Tensor, weight: Tensor) -> Tensor:
    """(silu(gate) · up) · weightᵀ, [N, K] twice to [N, M]."""
    y: Tensor = _GatedLinear.apply(gate, up, weight)  # type: ignore[no-untyped-call]
    return y


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        inverse = inverse_rms(x, eps)
        ctx.save_for_backward(x, weight, inverse)
        return _scaled(_normal(x, inverse), weight, x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, inverse = ctx.saved_tensors
        to_x, to_weight = _through_norm(gradients[0], x, _normal(x, inverse), inverse, weight)
        return to_x, to_weight if ctx.needs_input_grad[1] else None, None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (pull,) = gradients
        to_x = product(pull, weight.T) if ctx.needs_input_grad[0] else None
        return to_x, *_to_weights(pull, x, ctx.needs_input_grad[1:3])


class _NormedLinears(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, eps: float, *layers: Any) -> tuple[Tensor, ...]:
        inverse = inverse_rms(x, eps)
        ctx.save_for_backward(x, scale, inverse, *layers[::2])
        y = _scaled(_normal(x, inverse), scale, x.dtype)
        return tuple(product(y, weight, bias) for weight, bias in zip(layers[::2], layers[1::2], strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, inverse, *weights = ctx.saved_tensors
        normal, needs = _normal(x, inverse), ctx.needs_input_grad[3:]
        y = _scaled(normal, scale, x.dtype)
        to_layers: list[Tensor | None] = []
        to_y = product(gradients[0], weights[0].T)
        for index, (pull, weight) in enumerate(zip(gradients, weights, strict=True)):
            to_layers += _to_weights(pull, y, needs[2 * index : 2 * index + 2])
            if index:
                to_y += product(pull, weight.T)
        del y
        to_x, to_scale = _through_norm(to_y, x, normal, inverse, scale)
        return to_x, to_scale if ctx.needs_input_grad[1] else None, None, *to_layers


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return functional.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        return _through_gate(gradients[0].clone(), gate, up, functional.silu(gate))


class _GatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up, weight)
        return product(functional.silu(gate).mul_(up), weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gate, up, weight = ctx.saved_tensors
        (pull,) = gradients
        opened = functional.silu(gate)
        to_weight = summed_outer(pull, opened * up) if ctx.needs_input_grad[2] else None
        return *_through_gate(product(pull, weight.T), gate, up, opened), to_weight


def _to_weights(pull: Tensor, x: Tensor, needs: Sequence[bool]) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of a linear layer's weight and bias."""
    return summed_outer(pull, x) if needs[0] else None, pull.sum(0) if needs[1] else None


def _through_gate(pull: Tensor, gate: Tensor, up: Tensor, opened: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of gate and up; `pull` and `opened`, silu(gate), are used up."""
    to_up = opened.mul_(pull)
    return torch.ops.aten.silu_backward(pull.mul_(up), gate), to_up


def _normal(x: Tensor, inverse: Tensor) -> Tensor:
    """x / rms(x), in float32 or wider."""
    return wide(x) * inverse


def _scaled(normal: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    return scale * normal.to(dtype)


def _through_norm(pull: Tensor, x: Tensor, normal: Tensor, inverse: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of x and of the scale, each in its type; `normal` is used up."""
    pull, wide_scale = wide(pull), wide(scale)
    along = pull * normal
    to_scale = along.sum(0)
    to_x = pull * wide_scale
    to_x -= normal.mul_((along @ wide_scale / x.shape[-1])[:, None])
    to_x *= inverse
    return to_x.to(x.dtype), to_scale.to(scale.dtype)


def inverse_rms(x: Tensor, eps: float) -> Tensor:
    """1 / rms over the last dimension, [..., 1], in float32 (float64 stays)."""
    # The norm reads x once; squares that are then averaged are written and read again.
    mean_square = torch.linalg.vector_norm(wide(x), dim=-1, keepdim=True).square() / x.shape[-1]
    return torch.rsqrt(mean_square + eps)


def wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
