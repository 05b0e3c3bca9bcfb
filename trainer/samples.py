"""From an accepted batch to what the learner eats: samples with re-derived advantages, packed.

In: a `BatchOffer` and its rollout file. Out: `Sample`s in file order and bins of them under a token
budget. Nothing of the worker's arithmetic is used: rewards were re-run by a verifier, advantages are
derived here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protocol.api import BatchOffer
from protocol.canonical import hex0x
from protocol.errors import VerificationFailed
from protocol.rollouts import Rollout, read_rollouts
from protocol.rules import LengthRules, Rules
from trainer.loss import group_advantages


@dataclass(frozen=True)
class Sample:
    """One rollout: `tokens` int64 [P+T] (prompt and completion), of which the last `num_outputs` are trained on."""

    tokens: Tensor
    num_outputs: int
    advantage: float
    task_reward: float
    policy_version: int

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class TrainingBatch:
    """The samples of a step, groups contiguous, and what the learner must know of their rules."""

    samples: list[Sample]
    group_size: int
    temperature: float


def read_batch(offer: BatchOffer, file: bytes, rules: Rules) -> TrainingBatch:
    """The samples of a batch. Raises VerificationFailed where the file isn't the offered one."""
    found = hex0x(hashlib.sha256(file).digest())
    if found != offer.file_sha256:
        raise VerificationFailed("a batch file isn't the one offered", f"sha256 {found}, not {offer.file_sha256}")
    longest = max(offer.num_tokens, rules.sampling.max_new_tokens)
    _, rollouts = read_rollouts(file, max_rows=offer.num_rollouts, max_tokens=longest)
    if len(rollouts) != offer.num_rollouts or len(rollouts) != len(offer.groups) * rules.group_size:
        raise VerificationFailed(
            "a batch doesn't hold the groups it names", f"{len(rollouts)} rollouts in {len(offer.groups)} groups"
        )
    rewards = torch.tensor([total_reward(rollout, rules.lengths) for rollout in rollouts])
    advantages = group_advantages(rewards.reshape(-1, rules.group_size)).flatten().tolist()
    samples = [_sample(rollout, advantage) for rollout, advantage in zip(rollouts, advantages, strict=True)]
    return TrainingBatch(samples, rules.group_size, rules.sampling.temperature)


def total_reward(rollout: Rollout, lengths: LengthRules) -> float:
    """R = task reward - alpha * |target - length| where the prompt set a target (INTELLECT-2, section 3.3)."""
    if rollout.target_length < 0:
        return rollout.task_reward
    return rollout.task_reward - lengths.penalty_per_token * abs(rollout.target_length - rollout.num_units)


def _sample(rollout: Rollout, advantage: float) -> Sample:
    tokens = torch.cat([torch.from_numpy(rollout.input_tokens), torch.from_numpy(rollout.output_tokens)]).long()
    return Sample(tokens, rollout.num_units, advantage, rollout.task_reward, rollout.step)


def split_groups(samples: Sequence[Sample], group_size: int, num_parts: int) -> list[list[Sample]]:
    """Whole groups dealt into `num_parts` near-equal parts, one an optimizer step; none is repeated."""
    groups = [samples[start : start + group_size] for start in range(0, len(samples), group_size)]
    parts: list[list[Sample]] = [[] for _ in range(min(num_parts, len(groups)))]
    for index, group in enumerate(groups):
        parts[index % len(parts)].extend(group)
    return parts


def pack(samples: Sequence[Sample], max_tokens: int) -> list[list[Sample]]:
    """First-fit-decreasing bins of at most `max_tokens`; a longer sample has a bin to itself."""
    bins: list[list[Sample]] = []
    room: list[int] = []
    for sample in sorted(samples, key=len, reverse=True):
        index = next((i for i, free in enumerate(room) if free >= len(sample)), len(bins))
        if index == len(bins):
            bins.append([])
            room.append(max_tokens)
        bins[index].append(sample)
        room[index] -= len(sample)
    return bins
