"""Packing: samples of different lengths in as few rows of `max_tokens` as first-fit-decreasing finds.

In: samples. Out: `Bin`s, each one packed forward pass, with the rows that predict the trained tokens. Positions start
anew at each sample and none sees another (`protocol/packing.py`). Rollouts of one prompt that share a bin share the
prompt's pass as well, which pays from the first token on (docs/benchmarks.md):

    prompt ─┬─▶ outputs 0 … T₀−2        the last output predicts nothing, and is left out
            └─▶ outputs 0 … T₁−2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protocol.packing import Packing
from trainer.samples import Sample


@dataclass(frozen=True, eq=False)
class Family:
    """Samples by their places, that go through the model together; with `shares`, over one pass of their prompt."""

    places: tuple[int, ...]
    shares: bool
    num_tokens: int


@dataclass(frozen=True, eq=False)
class Bin:
    """One packed pass over N tokens for the samples at `places`, in this order.

    `tokens` int64 [N]; `rows` int64 [sum of T]: the packed rows whose hidden states predict `targets` int64 [sum of T].
    """

    places: tuple[int, ...]
    tokens: Tensor
    packing: Packing
    rows: Tensor
    targets: Tensor
    num_outputs: tuple[int, ...]


_ZERO = torch.zeros(1, dtype=torch.int64)
NO_SAMPLES = Bin((), _ZERO, Packing.of([1]), _ZERO, _ZERO, ())
"""A pass over one token that belongs to no sample."""


def cost(bin_: Bin, hidden_size: int) -> float:
    """Of a pass, in units of H multiplications: 12·H² weights a layer and token, and attention of lengths squared."""
    return 12.0 * hidden_size * len(bin_.tokens) + sum(length * length for length in bin_.packing.lengths)


def pack(samples: Sequence[Sample], places: Sequence[int], max_tokens: int) -> list[Bin]:
    """Bins of at most `max_tokens` that hold the samples at `places` once each; a longer sample has one to itself."""
    families = _families(samples, places, max_tokens)
    bins = _first_fit([family.num_tokens for family in families], max_tokens)
    return [_bin(samples, [families[index] for index in members]) for members in bins]


def _families(samples: Sequence[Sample], places: Sequence[int], max_tokens: int) -> list[Family]:
    """Neighbours of one prompt; larger ones than `max_tokens` in pieces."""
    families: list[Family] = []
    for members in _neighbours(samples, places):
        prompt = len(samples[members[0]].prompt)
        extra = [samples[place].num_outputs - 1 for place in members]
        fits = prompt + max(extra) < max_tokens
        if fits and len(members) > 1:
            for part in _first_fit(extra, max_tokens - prompt):
                size = prompt + sum(extra[index] for index in part)
                families.append(Family(tuple(members[index] for index in part), True, size))
        else:
            families += [Family((place,), False, prompt + more) for place, more in zip(members, extra, strict=True)]
    return families


def _neighbours(samples: Sequence[Sample], places: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for place in places:
        if runs and torch.equal(samples[runs[-1][0]].prompt, samples[place].prompt):
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _first_fit(sizes: Sequence[int], room: int) -> list[list[int]]:
    """First-fit-decreasing: indices of `sizes` in bins of `room`."""
    bins: list[list[int]] = []
    left: list[int] = []
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        target = next((bin_ for bin_, free in enumerate(left) if free >= sizes[index]), len(bins))
        if target == len(bins):
            bins.append([])
            left.append(room)
        bins[target].append(index)
        left[target] -= sizes[index]
    return bins


def _bin(samples: Sequence[Sample], families: Sequence[Family]) -> Bin:
    parts: list[Tensor] = []
    continues: list[int] = []
    rows: list[Tensor] = []
    start = 0
    for family in families:
        members = [samples[place] for place in family.places]
        if family.shares:
            prompt, root = members[0].prompt, len(parts)
            parts.append(prompt)
            continues.append(-1)
            last, start = start + len(prompt) - 1, start + len(prompt)
            for sample in members:
                more = sample.num_outputs - 1
                rows.append(torch.cat([torch.tensor([last]), torch.arange(start, start + more)]))
                if more:
                    parts.append(sample.outputs[:-1])
                    continues.append(root)
                start += more
        else:
            (sample,) = members
            parts.append(sample.tokens[:-1])
            continues.append(-1)
            rows.append(torch.arange(start + len(sample.prompt) - 1, start + len(sample) - 1))
            start += len(sample) - 1
    places = tuple(place for family in families for place in family.places)
    return Bin(
        places=places,
        tokens=torch.cat(parts),
        packing=Packing.of([len(part) for part in parts], continues),
        rows=torch.cat(rows),
        targets=torch.cat([samples[place].outputs for place in places]),
        num_outputs=tuple(samples[place].num_outputs for place in places),
    )
