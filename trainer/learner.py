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

from protocol.errors import ConfigError
from protocol.forward import CausalLM
from trainer.advantages import AdvantageScale
from trainer.bins import Bin, pack
from trainer.figures import StepFigures, Tally
from trainer.head import token_logprobs
from trainer.loss import ObjectiveConfig, TokenRows, token_shares, token_values
from trainer.samples import TrainingBatch, split_groups


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
    objective: ObjectiveConfig = ObjectiveConfig()
    advantage_scale: AdvantageScale = "std"
    """What a group's centred rewards are divided by: their standard deviation, or nothing (Dr. GRPO)."""


@dataclass(frozen=True, eq=False)
class Fixed:
    """Log-probs of the outputs that a step doesn't move, float32 [T] a sample, by place in the batch."""

    old: list[Tensor]
    reference: list[Tensor] | None


class Learner:
    """Model and optimizer, and what a batch does to them.

    `reference` is the frozen model that the recipe's KL term holds to; it must be there where that term is used.
    """

    def __init__(self, model: CausalLM, recipe: RecipeConfig, reference: CausalLM | None = None) -> None:
        if recipe.objective.kl_coefficient and reference is None:
            raise ConfigError("the recipe has a KL term and no reference", "recipe.objective.kl_coefficient is above 0")
        self.model = model
        self.recipe = recipe
        self.reference = reference if recipe.objective.kl_coefficient else None
        self.num_updates = 0
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=recipe.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay
        )

    def learn(self, batch: TrainingBatch, policy_version: int) -> StepFigures:
        """Take the optimizer steps of one batch, starting from `policy_version`."""
        tally = Tally(self.recipe.objective.clip)
        fixed = self._fixed(batch)
        for part in split_groups(len(batch.samples), batch.group_size, self.recipe.optimizer_steps):
            self._update(part, batch, fixed, tally)
        return tally.figures(batch.samples, policy_version)

    def logprobs(self, batch: TrainingBatch, model: CausalLM | None = None) -> list[Tensor]:
        """Log-probs of each sample's outputs, float32 [T], under the current weights, or under another model's."""
        found: list[Tensor] = [torch.empty(0)] * len(batch.samples)
        for bin_ in pack(batch.samples, range(len(batch.samples)), self.recipe.max_tokens):
            with torch.no_grad():
                logprobs, _ = forward(model or self.model, bin_, batch.temperature)
            for place, piece in zip(bin_.places, logprobs.split(bin_.num_outputs), strict=True):
                found[place] = piece
        return found

    def _fixed(self, batch: TrainingBatch) -> Fixed:
        reference = None if self.reference is None else self.logprobs(batch, self.reference)
        return Fixed(self.logprobs(batch), reference)

    def _update(self, part: Sequence[int], batch: TrainingBatch, fixed: Fixed, tally: Tally) -> None:
        """One optimizer step on the samples of `part`, its gradient summed over bins."""
        objective = self.recipe.objective
        lengths = [batch.samples[place].num_outputs for place in part]
        shares = token_shares(lengths, objective.normalisation, batch.max_new_tokens)
        share_of = dict(zip(part, shares, strict=True))
        self.optimizer.zero_grad(set_to_none=True)
        for bin_ in pack(batch.samples, part, self.recipe.max_tokens):
            rows = self._rows(bin_, batch, fixed)
            weights = _spread([share_of[place] for place in bin_.places], bin_)
            value = (token_values(rows, objective) * weights).sum()
            (-value).backward()
            tally.add(rows, float(value.detach()))
        self._set_learning_rate()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.grad_norm_clip)
        self.optimizer.step()
        self.num_updates += 1
        tally.close(float(norm))

    def _rows(self, bin_: Bin, batch: TrainingBatch, fixed: Fixed) -> TokenRows:
        """What the objective asks of the bin's trained tokens."""
        logprobs, entropy = forward(self.model, bin_, batch.temperature)
        samples = [batch.samples[place] for place in bin_.places]
        return TokenRows(
            logprobs=logprobs,
            entropy=entropy,
            old=torch.cat([fixed.old[place] for place in bin_.places]),
            worker=torch.cat([sample.worker_logprobs for sample in samples]),
            advantages=_spread([sample.advantage for sample in samples], bin_),
            reference=torch.cat([fixed.reference[place] for place in bin_.places]) if fixed.reference else None,
        )

    def _set_learning_rate(self) -> None:
        warm = min(1.0, (self.num_updates + 1) / self.recipe.warmup_steps) if self.recipe.warmup_steps else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * warm

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


def forward(model: CausalLM, bin_: Bin, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of a bin's trained tokens, float32 [sum of T] each."""
    hidden = model(bin_.tokens, bin_.packing)
    return token_logprobs(hidden[bin_.rows], model.head, bin_.targets, temperature)


def _spread(values: Sequence[float], bin_: Bin) -> Tensor:
    """One value a sample to float32 [sum of T], one a trained token."""
    return torch.tensor(values).repeat_interleave(torch.tensor(bin_.num_outputs))
