"""Matrix products of many rows, by the library that is quicker on this processor.

In: rows and weights of any type. Out: products, not differentiable (those of `protocol/gradients.py` are). torch hands
float32 products on a CPU to MKL, which takes twice as long as oneDNN on an AMD processor with AVX-512
(docs/benchmarks.md). Other types go to oneDNN anyway, and few rows don't pay for putting a weight in its order.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from protocol.engines.packed_linear import has_onednn

LEAST_ROWS = 64
SUMMED_ROWS = 1024
"""Rows that one product sums over: what it reads then stays in a processor's cache, and rounding adds up less."""
WRITTEN_ROWS = 4096
"""Rows of a sum that are written at a time, since oneDNN can't add to what is there."""


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x · weightᵀ + bias: x [..., K], weight [M, K], which may be a transposed view, bias [M]; the result [..., M]."""
    if not _by_onednn(x):
        return functional.linear(x, weight, bias)
    found: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
    return found


def summed_outer(left: Tensor, right: Tensor) -> Tensor:
    """leftᵀ · right: left [N, M], right [N, K]; the result [M, K]."""
    if not _by_onednn(left):
        return left.T @ right
    if left.shape[1] > right.shape[1]:  # oneDNN copies the left one
        return summed_outer(right, left).T.contiguous()
    pieces = zip(left.split(SUMMED_ROWS), right.split(SUMMED_ROWS), strict=True)
    total = _outer(*next(pieces))
    for piece in pieces:
        total += _outer(*piece)
    return total


def add_outer(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += leftᵀ · right, for a `total` [M, K] that is too large to have twice."""
    if total.dtype != left.dtype:
        total += left.T @ right
    elif not _by_onednn(left):
        total.addmm_(left.T, right)
    else:
        for rows, columns in zip(total.split(WRITTEN_ROWS), left.split(WRITTEN_ROWS, dim=1), strict=True):
            rows += _outer(columns, right)


def _outer(left: Tensor, right: Tensor) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise.default(left.T, right.T, None, "none", [], "")
    return found


def _by_onednn(x: Tensor) -> bool:
    return x.is_cpu and x.dtype == torch.float32 and x.shape[0] >= LEAST_ROWS and has_onednn(torch.float32)
