"""Keys and values of all rows that decode, in blocks of 16 tokens: rows come and go, and nothing is copied for it.

    prompt, 37 tokens        [block 5][block 2][5 tokens in block 9]
    two rollouts of it       [block 5][block 2][block 7: the 5 copied, then its own][block 1] …
                             [block 5][block 2][block 4: the 5 copied, then its own][block 6] …

In: how many tokens it may hold. Out: block numbers to rows that ask, taken back when they leave. What the blocks hold
is written and read by `protocol/engines/decoder.py`. Memory is used from when a block is first written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch

from protocol.errors import ProofpoolError
from protocol.weights import ModelConfig

BLOCK_TOKENS = 16

Blocks = list[int]


def num_blocks(num_tokens: int) -> int:
    """Blocks that so many tokens fill, the last perhaps in part."""
    return -(-num_tokens // BLOCK_TOKENS)


class PagedCache:
    """`keys` and `values` [layers, blocks, kv heads, BLOCK_TOKENS, head dim].

    Example::

        cache = PagedCache(config, max_tokens=4096, dtype=torch.float32)
        blocks = cache.take(num_blocks(100))
        cache.give(blocks)
    """

    def __init__(self, config: ModelConfig, max_tokens: int, dtype: torch.dtype) -> None:
        total = max_tokens // BLOCK_TOKENS
        shape = (config.num_hidden_layers, total, config.num_key_value_heads, BLOCK_TOKENS, config.head_dim)
        self.keys, self.values = _untouched_zeros(shape, dtype), _untouched_zeros(shape, dtype)
        self.reset()

    @property
    def num_blocks(self) -> int:
        return self.keys.shape[1]

    @property
    def num_free(self) -> int:
        return len(self._free)

    def reset(self) -> None:
        """All blocks are free."""
        self._free = list(range(self.num_blocks - 1, -1, -1))

    def take(self, count: int) -> Blocks:
        """Numbers of free blocks; the last ones given come first. Raises ProofpoolError where there are too few."""
        if count > len(self._free):
            raise ProofpoolError("the key-value cache is full", f"{count} blocks asked for, {len(self._free)} free")
        return [self._free.pop() for _ in range(count)]

    def give(self, blocks: Iterable[int]) -> None:
        """Free these again."""
        self._free.extend(blocks)

    def copy(self, source: int, targets: Blocks) -> None:
        """What one block holds, into others."""
        places = torch.tensor(targets)
        for cache in (self.keys, self.values):
            cache[:, places] = cache[:, source : source + 1]

    def places(self, tables: Iterable[Blocks], lengths: Iterable[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Block and place in it, int64 [N] each, of all tokens of rows of these lengths, row by row."""
        found = [_places(table, length) for table, length in zip(tables, lengths, strict=True)]
        blocks, insides = (torch.from_numpy(np.concatenate(part)) for part in zip(*found, strict=True))
        return blocks, insides


def _untouched_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros, not empty: columns that attention masks are multiplied by weight 0, and 0 x NaN would be NaN.

    numpy's are pages that the system hands out when they are first written; torch writes all of its own.
    """
    num_bytes = math.prod(shape) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(shape)


def _places(table: Blocks, length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    each = np.arange(length)
    return np.array(table)[each // BLOCK_TOKENS], each % BLOCK_TOKENS
