"""How sequences of different lengths share one forward pass without seeing each other.

In: lengths. Out: a `Packing`: each token's position, and index tensors that gather packed rows into
padded groups of similar length for attention, and back. Padding is on the right, so a causal mask
alone keeps it out: no real token ever attends to a padded one or to another sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from protocol.errors import ProofpoolError

LENGTH_STEP = 16
"""Sequences whose lengths round up to the same multiple share a group: wastes at most 15 rows each."""


@dataclass(frozen=True)
class Packing:
    """Index arithmetic of one packed batch of N tokens in S sequences.

    `positions` [N] int64; `groups`: per group a [B, T] int64 of packed row numbers (padded entries
    repeat the sequence's last row); `restore` [N] int64: where each packed row lies in the
    concatenation of the flattened groups.
    """

    lengths: tuple[int, ...]
    positions: Tensor
    groups: tuple[Tensor, ...]
    restore: Tensor

    @classmethod
    def of(cls, lengths: Sequence[int]) -> Packing:
        """Raises ProofpoolError for an empty sequence: it has no last token to continue from."""
        if not lengths or min(lengths) < 1:
            raise ProofpoolError("a packed batch needs sequences of at least one token", f"lengths {list(lengths)[:8]}")
        sizes = torch.tensor(lengths)
        starts = sizes.cumsum(0) - sizes
        positions = torch.arange(int(sizes.sum())) - starts.repeat_interleave(sizes)
        groups, restore, offset = [], torch.empty_like(positions), 0
        bins = (sizes + LENGTH_STEP - 1) // LENGTH_STEP
        for size_bin in sorted(set(bins.tolist())):
            members = torch.nonzero(bins == size_bin).flatten()
            columns = torch.arange(int(sizes[members].max()))
            rows = starts[members, None] + torch.minimum(columns, sizes[members, None] - 1)
            real = (columns < sizes[members, None]).flatten()
            restore[rows.flatten()[real]] = offset + torch.nonzero(real).flatten()
            groups.append(rows)
            offset += rows.numel()
        return cls(tuple(lengths), positions, tuple(groups), restore)

    @property
    def num_tokens(self) -> int:
        return len(self.positions)

    @cached_property
    def last_rows(self) -> Tensor:
        """[S] int64: the packed row of each sequence's last token."""
        return torch.tensor(self.lengths).cumsum(0) - 1
