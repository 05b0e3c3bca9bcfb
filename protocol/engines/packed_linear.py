"""A weight matrix laid out for the processor's matrix products.

oneDNN's inner product on a matrix that is put in its order once takes half the time of the plain product or less where
32 rows meet it. In: a weight [out, in] and perhaps a bias. Out: products; the plain ones where oneDNN isn't there.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

TYPICAL_ROWS = 32
LEAST_SIZE = 1 << 14
"""Smaller matrices take longer to call than to multiply with: the plain product is called quicker."""


class PackedLinear:
    """Example: `PackedLinear(weight)(x)`, [B, in] to [B, out]; `plus(x, residual)` adds in the same pass."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._bias = bias
        self._is_packed = has_onednn(weight.dtype) and weight.is_cpu and weight.numel() > LEAST_SIZE
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL_ROWS) if self._is_packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        if not self._is_packed:
            return functional.linear(x, self._weight, self._bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self._weight, self._bias, "none", [], "")
        return product

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """residual + product."""
        if not self._is_packed:
            return residual + functional.linear(x, self._weight, self._bias)
        summed: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._weight, self._bias, "add")
        return summed


@cache
def has_onednn(dtype: torch.dtype) -> bool:
    """Whether this build of torch can multiply so: the operators are those that its own compiler emits."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))
