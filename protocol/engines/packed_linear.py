"""A weight matrix laid out for the processor's matrix products.

oneDNN's inner product on a matrix that is put in its order once takes half the time of the plain product or less where
32 rows meet it. In: a weight [out, in] and perhaps a bias. Out: products; the plain ones where oneDNN isn't there.
Where each value lies in oneDNN's order is found out with a matrix of known values, so that it can be written there.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from protocol.engines.places import LOAD, Place
from protocol.errors import ProofpoolError

TYPICAL_ROWS = 32
LEAST_SIZE = 1 << 14
"""Smaller matrices take longer to call than to multiply with: the plain product is called quicker."""


EXACT_BITS = {torch.float32: 24, torch.bfloat16: 8}
"""Numbers of so many bits are exact."""


class PackedLinear:
    """Example: `PackedLinear(weight)(x)`, [B, in] to [B, out]; `plus(x, residual)` adds in the same pass."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.bias = bias
        self._shape, self._dtype = (weight.shape[0], weight.shape[1]), weight.dtype
        self._is_packed = has_onednn(weight.dtype) and weight.is_cpu and weight.numel() > LEAST_SIZE
        self._weight = _packed(weight) if self._is_packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        if not self._is_packed:
            return functional.linear(x, self._weight, self.bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self._weight, self.bias, "none", [], "")
        return product

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """residual + product."""
        if not self._is_packed:
            return residual + functional.linear(x, self._weight, self.bias)
        summed: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._weight, self.bias, "add")
        return summed

    def place(self) -> Place:
        """Where the weight lies. Raises ProofpoolError where this build of torch doesn't say."""
        if not self._is_packed:
            return Place.plain(self._weight)
        return Place(_memory(self._weight, self._dtype), *_packed_offsets(self._shape, self._dtype))


def _packed(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL_ROWS)
    return packed


def _memory(packed: Tensor, dtype: torch.dtype) -> Tensor:
    """A packed matrix's own memory, 1-D; longer than the matrix where blocks are filled up."""
    if not _can_reach_packed():
        raise ProofpoolError("packed weights can't be written to", f"torch {torch.__version__} doesn't say where", LOAD)
    address, size = torch.ops.mkldnn.data_ptr(packed), torch.ops.mkldnn._nbytes(packed)
    buffer = (ctypes.c_byte * size).from_address(address)
    buffer.owner = packed  # whoever has the memory keeps the matrix
    return torch.frombuffer(buffer, dtype=dtype)


def _can_reach_packed() -> bool:
    return hasattr(torch.ops.mkldnn, "data_ptr") and hasattr(torch.ops.mkldnn, "_nbytes")


@cache
def _packed_offsets(shape: tuple[int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Where oneDNN puts each row and each column: blocks of blocks, so the two add up. int64 [out], int64 [in]."""
    num_rows, num_columns = shape
    labels = torch.arange(1, num_rows + num_columns)  # of the first column, downwards, and of the first row's others
    bits = EXACT_BITS[dtype]
    offsets = torch.zeros(num_rows + num_columns, dtype=torch.int64)
    found: dict[int, int] = {}
    for shift in range(0, len(labels).bit_length(), bits):
        digits = (labels >> shift & ((1 << bits) - 1)).to(dtype)
        probe = torch.zeros(shape, dtype=dtype)
        probe[:, 0], probe[0, 1:] = digits[:num_rows], digits[num_rows:]
        packed = _packed(probe)
        memory = _memory(packed, dtype)
        filled = memory.nonzero().flatten()
        for place, digit in zip(filled.tolist(), memory[filled].long().tolist(), strict=True):
            found[place] = found.get(place, 0) + (digit << shift)
    for place, label in found.items():
        offsets[label] = place
    rows, columns = offsets[1 : num_rows + 1], torch.cat([offsets[1:2], offsets[num_rows + 1 :]])
    return rows - rows[0], columns


@cache
def has_onednn(dtype: torch.dtype) -> bool:
    """Whether this build of torch can multiply so: the operators are those that its own compiler emits."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))
