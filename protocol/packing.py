"""How sequences of different lengths share one forward pass without seeing each other.

In: lengths, and which sequences continue which. Out: a `Packing`: each token's position, and index tensors that
gather packed rows into padded groups of similar length for attention, and back. Padding is on the right, so
causality alone keeps it out: no real token ever attends to a padded one or to another sequence.

The rollouts of a group continue one prompt, which then goes through the model once:

    prompt ─┬─▶ completion 0        Packing.of([prompt, completion 0, completion 1], continues=[-1, 0, 0])
            └─▶ completion 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from protocol.errors import ProofpoolError

LENGTH_STEP = 16
"""Sequences whose lengths round up to the same multiple share a group: wastes at most 15 rows each."""
SHORTEST_UNMASKED = 1024
"""Sequences this long attend to what they continue by going over all of it: plain causality skips what a mask of their
length squared computes for nothing, and needs no such mask. On two processors it is quicker from here on."""
NOTHING = -1
"""What a sequence continues that starts at position 0."""


@dataclass(frozen=True)
class AttentionGroup:
    """B sequences that attend in one call, padded to T tokens, after P tokens of what they continue.

    `queries` [B, T] and `keys` [B, P + T] are int64 row numbers of the packed batch (padded entries repeat the
    sequence's last row); `sees` is bool [T, P + T]. Where it is None, plain causality holds, and `queries` are `keys`:
    without anything in front, and for long sequences.
    """

    queries: Tensor
    keys: Tensor
    sees: Tensor | None

    def to(self, device: torch.device) -> AttentionGroup:
        sees = None if self.sees is None else self.sees.to(device)
        return AttentionGroup(self.queries.to(device), self.keys.to(device), sees)


@dataclass(frozen=True)
class Packing:
    """Index arithmetic of one packed batch of N tokens in S sequences.

    `continues`: what each sequence goes on from, or −1; `positions` [N] int64; `restore` [N] int64: where each packed
    row lies in the concatenation of the groups' flattened queries.
    """

    lengths: tuple[int, ...]
    continues: tuple[int, ...]
    positions: Tensor
    groups: tuple[AttentionGroup, ...]
    restore: Tensor

    @classmethod
    def of(cls, lengths: Sequence[int], continues: Sequence[int] | None = None) -> Packing:
        """Raises ProofpoolError for an empty sequence: it has no last token to continue from.

        `continues` names the sequence that each one goes on from and sees all of, −1 for none; one that goes on
        from another can't be continued itself.
        """
        if not lengths or min(lengths) < 1:
            raise ProofpoolError("a packed batch needs sequences of at least one token", f"lengths {list(lengths)[:8]}")
        sizes = torch.tensor(lengths)
        starts = sizes.cumsum(0) - sizes
        parents = _parents(len(lengths), continues)
        prefixes = torch.where(parents == NOTHING, 0, sizes[parents])
        positions = torch.arange(int(sizes.sum())) - (starts - prefixes).repeat_interleave(sizes)
        groups, restore, offset = [], torch.empty_like(positions), 0
        kinds = torch.stack([prefixes, (sizes + LENGTH_STEP - 1) // LENGTH_STEP], dim=1)
        for kind in kinds.unique(dim=0):
            members = torch.nonzero((kinds == kind).all(dim=1)).flatten()
            columns = torch.arange(int(sizes[members].max()))
            rows = starts[members, None] + torch.minimum(columns, sizes[members, None] - 1)
            group = _group(rows, starts[parents[members]], int(kind[0]))
            places = offset + torch.arange(group.queries.numel()).view(group.queries.shape)[:, -len(columns) :]
            is_real = columns < sizes[members, None]
            restore[rows[is_real]] = places[is_real]
            groups.append(group)
            offset += group.queries.numel()
        return cls(tuple(lengths), tuple(parents.tolist()), positions, tuple(groups), restore)

    def to(self, device: torch.device) -> Packing:
        """The same with its index tensors on `device`."""
        if self.positions.device == device:
            return self
        groups = tuple(group.to(device) for group in self.groups)
        return replace(self, positions=self.positions.to(device), groups=groups, restore=self.restore.to(device))

    def whole(self, tokens: Tensor) -> list[Tensor]:
        """Each sequence of the packed `tokens` [N] with what it goes on from in front, for who can't share."""
        own = tokens.split(self.lengths)
        return [
            part if parent == NOTHING else torch.cat([own[parent], part])
            for parent, part in zip(self.continues, own, strict=True)
        ]

    @property
    def num_tokens(self) -> int:
        return len(self.positions)

    @cached_property
    def last_rows(self) -> Tensor:
        """[S] int64: the packed row of each sequence's last token."""
        return torch.tensor(self.lengths).cumsum(0) - 1


def _group(rows: Tensor, prefix_starts: Tensor, prefix: int) -> AttentionGroup:
    if not prefix:
        return AttentionGroup(rows, rows, None)
    keys = torch.cat([prefix_starts[:, None] + torch.arange(prefix), rows], dim=1)
    length = rows.shape[1]
    if length >= SHORTEST_UNMASKED:
        return AttentionGroup(keys, keys, None)
    return AttentionGroup(rows, keys, torch.ones(length, prefix + length, dtype=torch.bool).tril(prefix))


def _parents(num_sequences: int, continues: Sequence[int] | None) -> Tensor:
    """int64 [S], checked."""
    parents = torch.full((num_sequences,), NOTHING) if continues is None else torch.tensor(continues)
    is_sound = len(parents) == num_sequences and int(parents.min()) >= NOTHING and int(parents.max()) < num_sequences
    if not is_sound or bool((parents[parents[parents != NOTHING]] != NOTHING).any()):
        raise ProofpoolError("a sequence continues what it can't", f"{list(continues or [])[:8]}")
    return parents
