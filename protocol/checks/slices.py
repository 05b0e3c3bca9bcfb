"""Rollouts in slices of a bounded number of tokens, so that a forward pass over them has a bounded size.

In: a file's rollouts, and the numbers of those that are wanted. Out: `Slice`s in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from protocol.rollouts import Rollout
from protocol.sampling import Keys, Tokens, noise_keys


@dataclass(frozen=True, eq=False)
class Slice:
    """Some rollouts of a task, by their numbers in it; N output tokens together."""

    numbers: tuple[int, ...]
    rollouts: tuple[Rollout, ...]

    @property
    def lengths(self) -> list[int]:
        return [rollout.num_units for rollout in self.rollouts]

    def claimed(self) -> Tokens:
        """int64 [N]: the output tokens."""
        return np.concatenate([rollout.output_tokens for rollout in self.rollouts]).astype(np.int64)

    def keys(self, seed: bytes) -> Keys:
        """uint64 [N]: the noise of every token, by its rollout's number in the task and its position."""
        samples = np.repeat(np.array(self.numbers, dtype=np.int64), self.lengths)
        positions = np.concatenate([np.arange(length) for length in self.lengths])
        return noise_keys(seed, samples, positions)

    def row_of(self, rollout: int, position: int) -> int:
        """Where output token `position` of the rollout with this number lies among the N."""
        return sum(self.lengths[: self.numbers.index(rollout)]) + position


def slices(rollouts: Sequence[Rollout], numbers: Sequence[int], max_tokens: int) -> Iterator[Slice]:
    """The rollouts with these numbers, at most `max_tokens` together; a longer one is a slice of its own."""
    held: list[int] = []
    num_tokens = 0
    for number in numbers:
        length = len(rollouts[number].input_tokens) + rollouts[number].num_units - 1
        if held and num_tokens + length > max_tokens:
            yield Slice(tuple(held), tuple(rollouts[index] for index in held))
            held, num_tokens = [], 0
        held.append(number)
        num_tokens += length
    yield Slice(tuple(held), tuple(rollouts[index] for index in held))
