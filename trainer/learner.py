"""The learner: one batch in, the next policy version out.

In: samples of an accepted batch. Out: changed weights (float32 masters) and the step's figures.
Old log-probs are recomputed once at the start of the step, with the trainer's own weights.
Source: INTELLECT-2 (arXiv:2505.07291), section 3; the figures of its recipe are `RecipeConfig`'s defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from protocol.forward import CausalLM
from trainer.loss import ClipConfig, objective, token_logprobs
from trainer.samples import Sample, TrainingBatch, pack, split_groups


class RecipeConfig(BaseModel):
    """How a batch becomes optimizer steps; defaults are the paper's 32B recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    learning_rate: float = Field(default=3e-7, gt=0)
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = Field(default=0.01, ge=0)
    warmup_steps: int = Field(default=25, ge=0)
    grad_norm_clip: float = Field(default=0.1, gt=0)
    optimizer_steps: int = Field(default=8, ge=1)
    """Optimizer steps a batch, each on its own share of the groups."""
    max_tokens: int = Field(default=32_768, ge=1)
    """Tokens of one packed forward."""
    clip: ClipConfig = ClipConfig()


@dataclass(frozen=True)
class StepFigures:
    """What a step reports; means are over trained tokens unless said."""

    objective: float
    ratio_clipped_share: float
    entropy: float
    kl_to_old: float
    grad_norm: float
    mean_task_reward: float
    """Over rollouts."""
    mean_policy_lag: float
    """Over rollouts, in versions."""
    num_rollouts: int
    num_tokens: int


class Learner:
    """Model and optimizer, and what a batch does to them."""

    def __init__(self, model: CausalLM, recipe: RecipeConfig) -> None:
        self.model = model
        self.recipe = recipe
        self.num_updates = 0
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=recipe.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay
        )

    def learn(self, batch: TrainingBatch, policy_version: int) -> StepFigures:
        """Take the optimizer steps of one batch, starting from `policy_version`."""
        sums: dict[str, float] = {}
        parts = split_groups(batch.samples, batch.group_size, self.recipe.optimizer_steps)
        old = self.logprobs(batch.samples, batch.temperature)
        for part in parts:
            _add(sums, self._update(part, old, batch.temperature))
        return _figures(sums, batch.samples, policy_version, len(parts))

    def logprobs(self, samples: Sequence[Sample], temperature: float) -> dict[int, Tensor]:
        """Log-probs of the outputs by `id` of the sample, float [T] each, under the current weights."""
        found: dict[int, Tensor] = {}
        for bin_ in pack(samples, self.recipe.max_tokens):
            with torch.no_grad():
                logprobs, _ = self._forward(bin_, temperature)
            pieces = logprobs.split([sample.num_outputs for sample in bin_])
            found |= {id(sample): piece for sample, piece in zip(bin_, pieces, strict=True)}
        return found

    def _update(self, part: Sequence[Sample], old: dict[int, Tensor], temperature: float) -> dict[str, float]:
        """One optimizer step on `part`, its gradient summed over bins and divided by all its tokens."""
        num_tokens = sum(sample.num_outputs for sample in part)
        sums: dict[str, float] = {}
        self.optimizer.zero_grad(set_to_none=True)
        for bin_ in pack(part, self.recipe.max_tokens):
            logprobs, entropy = self._forward(bin_, temperature)
            old_logprobs = torch.cat([old[id(sample)] for sample in bin_])
            advantages = torch.cat([torch.full((s.num_outputs,), s.advantage) for s in bin_])
            values = objective(logprobs, old_logprobs, advantages, self.recipe.clip)
            (-values.sum() / num_tokens).backward()
            _add(sums, self._token_sums(values, logprobs, old_logprobs, entropy))
        self._set_learning_rate()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.grad_norm_clip)
        self.optimizer.step()
        self.num_updates += 1
        return sums | {"grad_norm": float(norm)}

    def _forward(self, samples: Sequence[Sample], temperature: float) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies of the trained tokens, sample after sample, each float [sum of T]."""
        tokens = torch.cat([sample.tokens for sample in samples])
        hidden = self.model(tokens, [len(sample) for sample in samples])
        ends = torch.tensor([len(sample) for sample in samples]).cumsum(0).tolist()
        # The row before a token predicts it: rows P-1 … P+T-2 for outputs P … P+T-1.
        rows = torch.cat([torch.arange(e - s.num_outputs - 1, e - 1) for e, s in zip(ends, samples, strict=True)])
        return token_logprobs(self.model.logits(hidden[rows]), tokens[rows + 1], temperature)

    def _set_learning_rate(self) -> None:
        warm = min(1.0, (self.num_updates + 1) / self.recipe.warmup_steps) if self.recipe.warmup_steps else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * warm

    def _token_sums(self, values: Tensor, logprobs: Tensor, old: Tensor, entropy: Tensor) -> dict[str, float]:
        with torch.no_grad():
            ratio = torch.exp(logprobs - old)
            clipped = (ratio - 1).abs() > self.recipe.clip.epsilon
            kl = ratio - 1 - (logprobs - old)
        return {
            "objective": float(values.detach().sum()),
            "clipped": float(clipped.sum()),
            "entropy": float(entropy.detach().sum()),
            "kl": float(kl.sum()),
        }

    def state(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {
            "weights": self.model.weights(),
            "optimizer": self.optimizer.state_dict(),
            "num_updates": self.num_updates,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was taken."""
        self.model.set_weights(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.num_updates = state["num_updates"]


def _add(sums: dict[str, float], more: dict[str, float]) -> None:
    for key, value in more.items():
        sums[key] = sums.get(key, 0.0) + value


def _figures(sums: dict[str, float], samples: Sequence[Sample], policy_version: int, num_updates: int) -> StepFigures:
    num_tokens = sum(sample.num_outputs for sample in samples)
    return StepFigures(
        objective=sums["objective"] / num_tokens,
        ratio_clipped_share=sums["clipped"] / num_tokens,
        entropy=sums["entropy"] / num_tokens,
        kl_to_old=sums["kl"] / num_tokens,
        grad_norm=sums["grad_norm"] / num_updates,
        mean_task_reward=sum(sample.task_reward for sample in samples) / len(samples),
        mean_policy_lag=sum(policy_version - sample.policy_version for sample in samples) / len(samples),
        num_rollouts=len(samples),
        num_tokens=num_tokens,
    )
