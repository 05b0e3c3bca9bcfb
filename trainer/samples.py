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
from protocol.checks.bounds import MAX_LOGPROB, MAX_REWARD, MIN_LOGPROB
from protocol.checks.case import MAX_PROMPT_TOKENS
from protocol.environments.base import NO_TARGET_LENGTH
from protocol.errors import MalformedRow, VerificationFailed
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
    target_length: int = NO_TARGET_LENGTH

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
class Limits:
    """What a row has to keep to, for this model and this step."""

    vocab_size: int
    max_positions: int
    """Of prompt and completion together."""
    oldest_version: int = 0
    """Rollouts of earlier policy versions may not be used."""


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
    offer: BatchOffer, file: bytes, rules: Rules, limits: Limits, scale: AdvantageScale = "std"
) -> TrainingBatch:
    """The samples of a batch, each within `limits`.

    Raises VerificationFailed where the file isn't the offered one, UnfitRow where a row can't be trained on.
    """
    found = hex0x(hashlib.sha256(file).digest())
    if found != offer.file_sha256:
        raise VerificationFailed("a batch file isn't the one offered", f"sha256 {found}, not {offer.file_sha256}")
    # `limits` judge prompts; a batch's own number of tokens, which counts outputs alone, says nothing of them.
    longest = max(MAX_PROMPT_TOKENS, rules.sampling.max_new_tokens)
    try:
        _, rollouts = read_rollouts(file, max_rows=offer.num_rollouts, max_tokens=longest)
    except MalformedRow as error:
        raise unfit_row(offer, rules, error.row, error.fault) from error
    if len(rollouts) != offer.num_rollouts or len(rollouts) != len(offer.groups) * rules.group_size:
        raise VerificationFailed(
            "a batch doesn't hold the groups it names", f"{len(rollouts)} rollouts in {len(offer.groups)} groups"
        )
    for row, rollout in enumerate(rollouts):
        if (fault := fault_of(rollout, rules, limits, offer.step)) is not None:
            raise unfit_row(offer, rules, row, fault)
    return batch_of(rollouts, rules, scale)


def unfit_row(offer: BatchOffer, rules: Rules, row: int, fault: str) -> VerificationFailed:
    """Names the submission that the row came in; a row past the offered groups is the file's own fault."""
    if row >= len(offer.groups) * rules.group_size:
        return VerificationFailed(
            "a batch doesn't hold the groups it names", f"row {row} in {len(offer.groups)} groups"
        )
    return UnfitRow(offer.groups[row // rules.group_size].submission_id, fault)


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


def fault_of(rollout: Rollout, rules: Rules, limits: Limits, step: int) -> str | None:
    """What makes a row unfit for the optimizer, with its value; None where nothing does.

    Each of these is refused long before, by the checks of a verifier: here they would poison every weight.
    """
    return (
        _length_fault(rollout, rules, limits) or _value_fault(rollout, limits) or _version_fault(rollout, limits, step)
    )


def _length_fault(rollout: Rollout, rules: Rules, limits: Limits) -> str | None:
    num_inputs, num_outputs = len(rollout.input_tokens), len(rollout.output_tokens)
    if not num_inputs or not num_outputs:
        return f"{num_inputs} prompt and {num_outputs} output tokens"
    if num_outputs > rules.sampling.max_new_tokens:
        return f"{num_outputs} output tokens, the rules allow {rules.sampling.max_new_tokens}"
    if num_inputs + num_outputs > limits.max_positions:
        return f"{num_inputs} prompt and {num_outputs} output tokens, the model has {limits.max_positions} positions"
    return None


def _value_fault(rollout: Rollout, limits: Limits) -> str | None:
    tokens = np.concatenate([rollout.input_tokens, rollout.output_tokens])
    if tokens.min() < 0 or tokens.max() >= limits.vocab_size:
        return f"a token id of {tokens.min()} to {tokens.max()}, the model has {limits.vocab_size}"
    logprobs = rollout.output_logprobs
    if len(logprobs) != len(rollout.output_tokens) or not np.isfinite(logprobs).all():
        return "log-probs that aren't one finite number a token"
    if logprobs.min() < MIN_LOGPROB or logprobs.max() > MAX_LOGPROB:
        return f"log-probs of {logprobs.min():g} to {logprobs.max():g}, not {MIN_LOGPROB:g} to {MAX_LOGPROB:g}"
    if not math.isfinite(rollout.task_reward) or abs(rollout.task_reward) > MAX_REWARD:
        return f"a task reward of {rollout.task_reward:g}"
    return None


def _version_fault(rollout: Rollout, limits: Limits, step: int) -> str | None:
    if not 0 <= rollout.step < step:
        return f"policy version {rollout.step} in the batch of step {step}"
    if rollout.step < limits.oldest_version:
        return f"policy version {rollout.step}, the pool's max_async allows {limits.oldest_version} and later"
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
        target_length=rollout.target_length,
    )


def split_groups(num_samples: int, group_size: int, num_parts: int) -> Sequence[list[int]]:
    """Places of whole groups dealt into `num_parts` near-equal parts, one an optimizer step; none is repeated."""
    groups = [range(start, start + group_size) for start in range(0, num_samples, group_size)]
    parts: list[list[int]] = [[] for _ in range(min(num_parts, len(groups)))]
    for index, group in enumerate(groups):
        parts[index % len(parts)].extend(group)
    return parts
