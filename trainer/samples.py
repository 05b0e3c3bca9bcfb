"""From an accepted batch to samples with re-derived advantages.

In: a `BatchOffer` and its rollout file. Out: `Sample`s in file order. Nothing of the worker's arithmetic is used:
rewards were re-run by a verifier, advantages are derived here, and a row that no honest worker could have sent
is refused before the optimizer sees it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from protocol.api import BatchOffer
from protocol.canonical import hex0x
from protocol.errors import VerificationFailed
from protocol.rollouts import Rollout, read_rollouts
from protocol.rules import Rules
from trainer.advantages import AdvantageScale, group_advantages, length_penalty


@dataclass(frozen=True, eq=False)
class Sample:
    """One rollout: `prompt` int64 [P], `outputs` int64 [T] which are trained on, `worker_logprobs` float32 [T]."""

    prompt: Tensor
    outputs: Tensor
    worker_logprobs: Tensor
    advantage: float
    task_reward: float
    length_penalty: float
    policy_version: int

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    @property
    def tokens(self) -> Tensor:
        """int64 [P + T]."""
        return torch.cat([self.prompt, self.outputs])

    def __len__(self) -> int:
        return len(self.prompt) + len(self.outputs)


class UnfitRow(VerificationFailed):
    """A row that would poison the weights, with the submission that it came in."""

    def __init__(self, submission_id: str, fault: str) -> None:
        super().__init__("a batch holds a row that can't be trained on", f"{submission_id}: {fault}")
        self.submission_id = submission_id
        self.fault = fault


@dataclass(frozen=True)
class TrainingBatch:
    """The samples of a step, groups contiguous, and what the learner must know of their rules."""

    samples: list[Sample]
    group_size: int
    temperature: float
    max_new_tokens: int

    @property
    def num_outputs(self) -> list[int]:
        """Trained tokens of each sample."""
        return [sample.num_outputs for sample in self.samples]


def read_batch(
    offer: BatchOffer, file: bytes, rules: Rules, vocab_size: int, scale: AdvantageScale = "std"
) -> TrainingBatch:
    """The samples of a batch for a model of `vocab_size` tokens.

    Raises VerificationFailed where the file isn't the offered one, UnfitRow where a row can't be trained on.
    """
    found = hex0x(hashlib.sha256(file).digest())
    if found != offer.file_sha256:
        raise VerificationFailed("a batch file isn't the one offered", f"sha256 {found}, not {offer.file_sha256}")
    longest = max(offer.num_tokens, rules.sampling.max_new_tokens)
    _, rollouts = read_rollouts(file, max_rows=offer.num_rollouts, max_tokens=longest)
    if len(rollouts) != offer.num_rollouts or len(rollouts) != len(offer.groups) * rules.group_size:
        raise VerificationFailed(
            "a batch doesn't hold the groups it names", f"{len(rollouts)} rollouts in {len(offer.groups)} groups"
        )
    for row, rollout in enumerate(rollouts):
        if (fault := fault_of(rollout, rules, vocab_size, offer.step)) is not None:
            submission_id = offer.groups[row // rules.group_size].submission_id
            raise UnfitRow(submission_id, fault)
    return batch_of(rollouts, rules, scale)


def batch_of(rollouts: Sequence[Rollout], rules: Rules, scale: AdvantageScale = "std") -> TrainingBatch:
    """Samples of whole groups, in order, with their advantages."""
    penalties = [length_penalty(rollout, rules.lengths) for rollout in rollouts]
    rewards = torch.tensor([r.task_reward - penalty for r, penalty in zip(rollouts, penalties, strict=True)])
    advantages = group_advantages(rewards.reshape(-1, rules.group_size), scale).flatten().tolist()
    rows = zip(rollouts, advantages, penalties, strict=True)
    return TrainingBatch(
        [sample_of(rollout, advantage, penalty) for rollout, advantage, penalty in rows],
        rules.group_size,
        rules.sampling.temperature,
        rules.sampling.max_new_tokens,
    )


def fault_of(rollout: Rollout, rules: Rules, vocab_size: int, step: int) -> str | None:
    """What makes a row unfit for the optimizer, with its value; None where nothing does.

    Each of these is refused long before, by the checks of a verifier: here they would poison every weight.
    """
    tokens = np.concatenate([rollout.input_tokens, rollout.output_tokens])
    if not len(rollout.input_tokens) or not len(rollout.output_tokens):
        return f"{len(rollout.input_tokens)} prompt and {len(rollout.output_tokens)} output tokens"
    if len(rollout.output_tokens) > rules.sampling.max_new_tokens:
        return f"{len(rollout.output_tokens)} output tokens, the rules allow {rules.sampling.max_new_tokens}"
    if tokens.min() < 0 or tokens.max() >= vocab_size:
        return f"a token id of {tokens.min()} to {tokens.max()}, the model has {vocab_size}"
    if len(rollout.output_logprobs) != len(rollout.output_tokens) or not np.isfinite(rollout.output_logprobs).all():
        return "log-probs that aren't one finite number a token"
    if not math.isfinite(rollout.task_reward):
        return f"a task reward of {rollout.task_reward}"
    if not 0 <= rollout.step < step:
        return f"policy version {rollout.step} in the batch of step {step}"
    return None


def sample_of(rollout: Rollout, advantage: float, penalty: float = 0.0) -> Sample:
    return Sample(
        prompt=torch.from_numpy(rollout.input_tokens).long(),
        outputs=torch.from_numpy(rollout.output_tokens).long(),
        worker_logprobs=torch.from_numpy(rollout.output_logprobs).float(),
        advantage=advantage,
        task_reward=rollout.task_reward,
        length_penalty=penalty,
        policy_version=rollout.step,
    )


def split_groups(num_samples: int, group_size: int, num_parts: int) -> Sequence[list[int]]:
    """Places of whole groups dealt into `num_parts` near-equal parts, one an optimizer step; none is repeated."""
    groups = [range(start, start + group_size) for start in range(0, num_samples, group_size)]
    parts: list[list[int]] = [[] for _ in range(min(num_parts, len(groups)))]
    for index, group in enumerate(groups):
        parts[index % len(parts)].extend(group)
    return parts
