"""What a decoder computes besides matrix products, in two ways with the same results up to float noise.

    CompiledParts   numba kernels (`decode_kernels.py`)
    PlainParts      torch alone: where numba is missing or PROOFPOOL_KERNELS=plain

In: tensors in the engine's precision. Out: the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from protocol.engines.paged_cache import BLOCK_TOKENS, PagedCache
from protocol.forward import rope_tables, rotate
from protocol.kernels import are_enabled
from protocol.weights import ModelConfig

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.uint64]
Attend = Callable[[int, Tensor], Tensor]
"""(layer, [B, (Q + 2 K) · D] queries, keys and values before rotation) to [B, Q · D]."""


@dataclass(frozen=True, eq=False)
class Norm:
    """[B, H] to x / rms(x) · weight. `weight` [H] is what `compute` reads each time: what is written there counts."""

    weight: Tensor
    compute: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        return self.compute(x)


class Parts(Protocol):
    """`cache_dtype` is what the paged cache holds."""

    cache_dtype: torch.dtype

    def norm(self, weight: Tensor) -> Norm:
        """The norm with this weight [H]."""
        ...

    def swiglu(self, both: Tensor) -> Tensor:
        """silu(gate) · up, [B, I], of [B, 2 I]: gates first."""
        ...

    def attention(self, cache: PagedCache, tables: Indices, slots: Indices, positions: Indices) -> Attend:
        """Attention of new tokens, whose keys and values it also puts into blocks.

        Row b's blocks are `tables[slots[b]]`, and it has `positions[b]` earlier tokens.
        """
        ...


def make_parts(config: ModelConfig, dtype: torch.dtype) -> Parts:
    return CompiledParts(config, dtype) if are_enabled() else PlainParts(config, dtype)


def flat_rope(config: ModelConfig, dtype: torch.dtype) -> tuple[Floats, Floats]:
    """Cosines and sines [positions, D / 2], flat, with the values that they have in `dtype`."""
    cosines, sines = (table[:, 0, config.head_dim // 2 :].float() for table in rope_tables(config, dtype))
    return cosines.flatten().numpy(), sines.flatten().numpy()


class CompiledParts:
    """Computes in float32, and rounds where a bfloat16 forward pass does."""

    cache_dtype = torch.float32

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        from protocol.engines import decode_kernels, lanes

        self._kernels, self._lanes = decode_kernels, lanes.LANES
        self._dtype, self._is_bf16 = dtype, dtype == torch.bfloat16
        self._eps = np.float32(config.rms_norm_eps)
        num_queries, num_kv, self._head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self._width, self._group = num_queries * self._head_dim, num_queries // num_kv
        self._shape = tuple(map(np.uint64, (num_queries, num_kv, self._head_dim, BLOCK_TOKENS)))
        self._cosines, self._sines = flat_rope(config, dtype)

    def norm(self, weight: Tensor) -> Norm:
        wide = weight.float()
        factors = wide.numpy()

        def normed(x: Tensor) -> Tensor:
            out = torch.empty(x.shape)
            self._kernels.normed(x.float().numpy(), factors, self._eps, self._is_bf16, out.numpy())
            return out.to(self._dtype)

        return Norm(wide, normed)

    def swiglu(self, both: Tensor) -> Tensor:
        out = torch.empty(len(both), both.shape[1] // 2)
        self._kernels.swiglu(both.float().numpy(), self._is_bf16, out.numpy())
        return out.to(self._dtype)

    def attention(self, cache: PagedCache, tables: Indices, slots: Indices, positions: Indices) -> Attend:
        scores = np.empty(self._group * (int(positions.max()) + self._lanes), dtype=np.float32)

        def attend(layer: int, heads: Tensor) -> Tensor:
            out = torch.empty(len(heads), self._width)
            keys, values = (x[layer].view(-1).numpy() for x in (cache.keys, cache.values))
            self._kernels.attend(
                heads.float().view(-1).numpy(), keys, values, tables, slots, positions,
                self._cosines, self._sines, self._shape, self._is_bf16, scores, out.view(-1).numpy(),
            )  # fmt: skip
            return out.to(self._dtype)

        return attend


class PlainParts:
    """Gathers the blocks of all rows to the longest row's width, and masks what shorter ones don't have."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        self.cache_dtype = dtype
        self._config = config
        self._rope = rope_tables(config, dtype)

    def norm(self, weight: Tensor) -> Norm:
        size = weight.shape[0]

        def normed(x: Tensor) -> Tensor:
            wide = x.float()
            mean_square = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square() / size
            return weight * (wide * torch.rsqrt(mean_square + self._config.rms_norm_eps)).to(x.dtype)

        return Norm(weight, normed)

    def swiglu(self, both: Tensor) -> Tensor:
        gate, up = both.chunk(2, dim=-1)
        return functional.silu(gate) * up

    def attention(self, cache: PagedCache, tables: Indices, slots: Indices, positions: Indices) -> Attend:
        config, at = self._config, torch.from_numpy(positions.astype(np.int64))
        width = math.ceil((int(at.max()) + 1) / BLOCK_TOKENS)
        blocks = torch.from_numpy(tables[slots, :width].astype(np.int64))
        unseen = torch.arange(width * BLOCK_TOKENS) > at[:, None]
        mask = torch.zeros(unseen.shape, dtype=self.cache_dtype).masked_fill(unseen, -torch.inf)[:, None, None]
        own = blocks.gather(1, at[:, None] // BLOCK_TOKENS)[:, 0], at % BLOCK_TOKENS
        rope = self._rope[0][at], self._rope[1][at]
        sizes = [config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads]

        def attend(layer: int, heads: Tensor) -> Tensor:
            queries, keys, values = heads.unflatten(1, (-1, config.head_dim)).split(sizes, dim=1)
            cache.keys[layer, own[0], :, own[1]] = rotate(keys, rope)
            cache.values[layer, own[0], :, own[1]] = values
            k, v = (x[layer][blocks].transpose(1, 2).flatten(2, 3) for x in (cache.keys, cache.values))
            q = rotate(queries, rope).unflatten(1, (config.num_key_value_heads, -1))
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).flatten(1)

        return attend
