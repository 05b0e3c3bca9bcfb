"""Keys and values of the tokens decoded so far, for a batch whose rows differ in length.

In: keys and values, layer by layer, from `protocol/forward.py`. Out: the slices attention reads.
Rows leave with `keep`; the same call repeats a prompt's row for every rollout of its group.
"""

from __future__ import annotations

import torch
from torch import Tensor

from protocol.errors import ProofpoolError
from protocol.packing import Packing
from protocol.weights import ModelConfig


class KvCache:
    """Preallocated [layers, T, B, kv heads, head dim] keys and values, and the `lengths` [B] in use.

    Time comes before the batch: a step then streams through memory, which is what it costs on a CPU.

    Example::

        cache = model.prefill(tokens, [len(p) for p in prompts], max_length=96)[1]
        cache.keep(torch.arange(len(prompts)).repeat_interleave(8))   # eight rollouts a prompt
        hidden = model.step(first_tokens, cache)                      # [B, H]
        cache.keep(torch.nonzero(unfinished).flatten())
    """

    def __init__(self, config: ModelConfig, batch: int, max_length: int, like: Tensor) -> None:
        shape = (config.num_hidden_layers, max_length, batch, config.num_key_value_heads, config.head_dim)
        # Zeros, not empty: masked columns are multiplied by weight 0, and 0 x NaN would be NaN.
        self.keys = torch.zeros(shape, dtype=like.dtype, device=like.device)
        self.values = torch.zeros_like(self.keys)
        self.lengths = torch.zeros(batch, dtype=torch.int64, device=like.device)

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @property
    def max_length(self) -> int:
        return self.keys.shape[1]

    def fill(self, layer: int, packing: Packing, keys: Tensor, values: Tensor) -> None:
        """Stores a prefill's packed keys and values ([N, kv heads, head dim]) of one layer."""
        sizes = torch.tensor(packing.lengths)
        rows = torch.arange(self.batch).repeat_interleave(sizes)
        self.keys[layer, packing.positions, rows] = keys
        self.values[layer, packing.positions, rows] = values

    def put(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Stores one more token's keys and values ([B, kv heads, head dim]) at `lengths`, without advancing."""
        rows = torch.arange(self.batch)
        self.keys[layer, self.lengths, rows] = keys
        self.values[layer, self.lengths, rows] = values

    def can_step(self) -> bool:
        return bool((self.lengths < self.max_length).all())

    def check_room(self) -> None:
        if not self.can_step():
            raise ProofpoolError("the key-value cache is full", f"{self.max_length} tokens", "make it longer")

    def keep(self, rows: Tensor) -> None:
        """Keeps (or repeats) the given rows, in the given order; `rows` is int64 [B']."""
        used = int(self.lengths.max())
        self.lengths = self.lengths.index_select(0, rows)
        self.keys, self.values = (self._kept(cache, rows, used) for cache in (self.keys, self.values))

    def _kept(self, cache: Tensor, rows: Tensor, used: int) -> Tensor:
        kept = cache.new_zeros((*cache.shape[:2], len(rows), *cache.shape[3:]))
        kept[:, :used] = cache[:, :used].index_select(2, rows)
        return kept
