"""Batches for figures about the trainer: random tokens, lengths that are the same each time.

In: a model's configuration. Out: a `TrainingBatch`: groups of eight completions of one prompt. "mixed": lengths whose
mean, prompt included, is at most half of the longest; "equal": all as long as the longest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from trainer.advantages import group_advantages
from trainer.samples import Sample, TrainingBatch

GROUP_SIZE = 8
Shape = Literal["mixed", "equal"]
SHARES = (1.0, 0.66, 0.45, 0.34, 0.26, 0.2, 0.14, 0.1)
"""Lengths of a group's completions against the longest: few long ones, many short ones."""


@dataclass(frozen=True)
class Work:
    """How much is trained on. `Work(4, 40, 200).batch("mixed", 30)`: 32 samples of tokens below 30."""

    num_groups: int
    prompt_tokens: int
    max_new_tokens: int

    def batch(self, shape: Shape, vocab_size: int, seed: int = 0) -> TrainingBatch:
        generator = torch.Generator().manual_seed(seed)

        def tokens(count: int) -> torch.Tensor:
            return torch.randint(2, vocab_size, (count,), generator=generator)

        rewards = torch.rand(self.num_groups, GROUP_SIZE, generator=generator)
        advantages, samples = group_advantages(rewards), []
        for group in range(self.num_groups):
            prompt = tokens(self.prompt_tokens)
            order = torch.randperm(GROUP_SIZE, generator=generator).tolist()
            for member in range(GROUP_SIZE):
                length = round(self.max_new_tokens * SHARES[order[member]]) if shape == "mixed" else self.max_new_tokens
                outputs, advantage = tokens(length), float(advantages[group, member])
                worker = -torch.rand(length, generator=generator)
                samples.append(Sample(prompt, outputs, worker, advantage, 0.0, 0.0, 0))
        return TrainingBatch(samples, GROUP_SIZE, 1.0, self.max_new_tokens)


def fullness(batch: TrainingBatch) -> float:
    """Mean length against the longest, prompts included."""
    lengths = [len(sample) for sample in batch.samples]
    return sum(lengths) / len(lengths) / max(lengths)
