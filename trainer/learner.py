"""The learner: one batch in, the next policy version out.

In: samples of an accepted batch. Out: changed weights (float32 masters) and the step's figures.
Old log-probs are the trainer's own at the start of the step. The first optimizer step still has those weights, so its
old log-probs are its own, and its ratios exactly 1; those of the others are computed before it.
Source: INTELLECT-2 (arXiv:2505.07291), section 3; the figures of its recipe are `RecipeConfig`'s defaults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from protocol.errors import ConfigError, ProofpoolError
from protocol.forward import CausalLM
from trainer.advantages import AdvantageScale
from trainer.bins import NO_SAMPLES, Bin, cost, pack
from trainer.figures import StepFigures, Tally
from trainer.lora import LoraConfig, switched_off
from trainer.loss import ObjectiveConfig, TokenRows, token_shares, token_values
from trainer.policy import Policy, whole
from trainer.ranks import ALONE, Ranks
from trainer.samples import TrainingBatch, split_groups

Momentum = Annotated[float, Field(ge=0, lt=1)]


class RecipeConfig(BaseModel):
    """How a batch becomes optimizer steps; defaults are the paper's 32B recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    learning_rate: float = Field(default=3e-7, gt=0)
    betas: tuple[Momentum, Momentum] = (0.9, 0.99)
    weight_decay: float = Field(default=0.01, ge=0)
    warmup_steps: int = Field(default=25, ge=0, lt=2**31)
    grad_norm_clip: float = Field(default=0.1, gt=0)
    optimizer_steps: int = Field(default=8, ge=1, le=65_536)
    """Optimizer steps a batch, each on its own share of the groups."""
    max_tokens: int = Field(default=32_768, ge=1, lt=2**31)
    """Tokens of one packed forward."""
    objective: ObjectiveConfig = ObjectiveConfig()
    advantage_scale: AdvantageScale = "std"
    """What a group's centred rewards are divided by: their standard deviation, or nothing (Dr. GRPO)."""
    lora: LoraConfig | None = None
    """Train adapters alone: a table of its own, below. All parameters are trained without it."""


def changed(before: RecipeConfig, now: RecipeConfig) -> dict[str, str]:
    """Settings that differ, as `objective.clip.epsilon`, each with `before -> now`."""
    then, here = (dict(_settings(recipe.model_dump(mode="json"))) for recipe in (before, now))
    names = sorted(then.keys() | here.keys())
    return {name: f"{then.get(name)} -> {here.get(name)}" for name in names if then.get(name) != here.get(name)}


def _settings(table: Mapping[str, object], head: str = "") -> Iterator[tuple[str, object]]:
    """Of a table and the tables in it, by dotted name."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{head}{name}.")
        else:
            yield f"{head}{name}", value


MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, eq=False)
class Fixed:
    """Log-probs of the outputs that a step doesn't move, float32 [T] a sample, by place in the batch.

    `first` are the places of the first optimizer step, which has its old log-probs itself: `old` is 0 there.
    """

    first: frozenset[int]
    old: list[Tensor]
    reference: list[Tensor] | None


class Learner:
    """Model and optimizer, and what a batch does to them.

    `reference` is the frozen model that the recipe's KL term holds to; it must be there where that term is used.
    Adapters hold to what they are added to, which is there already.
    With several `ranks` each of them has a learner, all are given the same batches, and each takes its share of the
    bins; where it has fewer than others, it computes on nothing, since layers are gathered by all ranks at once.
    """

    def __init__(
        self,
        model: CausalLM | Policy,
        recipe: RecipeConfig,
        reference: CausalLM | Policy | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        if recipe.objective.kl_coefficient and recipe.lora is None and reference is None:
            raise ConfigError("the recipe has a KL term and no reference", "recipe.objective.kl_coefficient is above 0")
        self.policy = _policy(model)
        if self.policy.lora != recipe.lora:
            raise ConfigError("the model hasn't the recipe's adapters", f"{self.policy.lora}, not {recipe.lora}")
        self.model = self.policy.model
        self.recipe = recipe
        self.reference = _policy(reference) if reference is not None and recipe.objective.kl_coefficient else None
        self.ranks = ranks
        self.num_updates = 0
        self.optimizer = torch.optim.AdamW(
            [parameter for _, parameter in self.trained()],
            lr=recipe.learning_rate,
            betas=recipe.betas,
            weight_decay=recipe.weight_decay,
            fused=True,  # one pass over a parameter and its moments, not ten
        )

    def learn(self, batch: TrainingBatch, policy_version: int) -> StepFigures:
        """Take the optimizer steps of one batch, starting from `policy_version`.

        Raises ProofpoolError where a gradient isn't finite, on every rank: what was learnt of the batch
        is to be dropped.
        """
        tally = Tally(self.recipe.objective.clip, self.recipe.objective.kl_coefficient > 0)
        parts = split_groups(len(batch.samples), batch.group_size, self.recipe.optimizer_steps)
        fixed = self._fixed(batch, parts)
        for part in parts:
            self._update(part, batch, fixed, tally)
        return tally.figures(batch, policy_version, self.ranks)

    def logprobs(
        self, batch: TrainingBatch, policy: Policy | None = None, places: Sequence[int] | None = None
    ) -> list[Tensor]:
        """Log-probs of each sample's outputs, float32 [T], under the current weights, or under another model's.

        Given `places`, those of all others are 0.
        """
        places = range(len(batch.samples)) if places is None else places
        found = list(torch.zeros(sum(batch.num_outputs)).split(batch.num_outputs))
        for bin_ in self._own_bins(batch, places):
            with torch.no_grad():
                logprobs, _ = (policy or self.policy)(bin_, batch.temperature)
            if bin_.places:
                for place, piece in zip(bin_.places, logprobs.cpu().split(bin_.num_outputs), strict=True):
                    found[place] = piece
        return list(self.ranks.sum(torch.cat(found)).split(batch.num_outputs)) if self.ranks.size > 1 else found

    def _own_bins(self, batch: TrainingBatch, places: Sequence[int]) -> list[Bin]:
        """This rank's share of the packed `places`."""
        bins = pack(batch.samples, places, self.recipe.max_tokens)
        return self.ranks.share(bins, [cost(bin_, self.model.config.hidden_size) for bin_ in bins], NO_SAMPLES)

    def _fixed(self, batch: TrainingBatch, parts: Sequence[Sequence[int]]) -> Fixed:
        later = [place for part in parts[1:] for place in part]
        return Fixed(frozenset(parts[0]), self.logprobs(batch, places=later), self._reference_logprobs(batch))

    def _reference_logprobs(self, batch: TrainingBatch) -> list[Tensor] | None:
        if not self.recipe.objective.kl_coefficient:
            return None
        if self.reference is not None:
            return self.logprobs(batch, self.reference)
        with switched_off(self.model):
            return self.logprobs(batch)

    def _update(self, part: Sequence[int], batch: TrainingBatch, fixed: Fixed, tally: Tally) -> None:
        """One optimizer step on the samples of `part`, its gradient summed over bins."""
        objective = self.recipe.objective
        lengths = [batch.samples[place].num_outputs for place in part]
        shares = token_shares(lengths, objective.normalisation, batch.max_new_tokens)
        share_of = dict(zip(part, shares, strict=True))
        self.optimizer.zero_grad(set_to_none=True)
        for bin_ in self._own_bins(batch, part):
            if not bin_.places:
                self._join_in(batch.temperature)
                continue
            rows = self._rows(bin_, batch, fixed)
            weights = _spread([share_of[place] for place in bin_.places], bin_).to(rows.logprobs.device)
            value = (token_values(rows, objective) * weights).sum()
            (-value).backward()
            tally.add(rows, float(value.detach()))
        self._set_learning_rate()
        norm = float(whole(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.grad_norm_clip)))
        if not math.isfinite(norm):
            raise ProofpoolError(
                "the gradient isn't finite, so no optimizer step was taken with it",
                f"its norm is {norm} at optimizer step {self.num_updates + 1}",
                "the newest checkpoint is sound: look at the curves for what grew, take a smaller learning rate, "
                "and go back some versions with --resume N",
            )
        self.optimizer.step()
        self.num_updates += 1
        tally.close(norm)

    def _join_in(self, temperature: float) -> None:
        """A pass whose loss is 0: it adds nothing to the gradient, and the other ranks' passes can go on."""
        logprobs, entropy = self.policy(NO_SAMPLES, temperature)
        ((logprobs + entropy).sum() * 0).backward()

    def _rows(self, bin_: Bin, batch: TrainingBatch, fixed: Fixed) -> TokenRows:
        """What the objective asks of the bin's trained tokens."""
        logprobs, entropy = self.policy(bin_, batch.temperature)
        samples = [batch.samples[place] for place in bin_.places]
        is_first = fixed.first.issuperset(bin_.places)
        device = logprobs.device
        return TokenRows(
            logprobs=logprobs,
            entropy=entropy,
            old=logprobs.detach() if is_first else torch.cat([fixed.old[place] for place in bin_.places]).to(device),
            worker=torch.cat([sample.worker_logprobs for sample in samples]).to(device),
            advantages=_spread([sample.advantage for sample in samples], bin_).to(device),
            reference=torch.cat([fixed.reference[place] for place in bin_.places]).to(device)
            if fixed.reference
            else None,
        )

    def _set_learning_rate(self) -> None:
        warm = min(1.0, (self.num_updates + 1) / self.recipe.warmup_steps) if self.recipe.warmup_steps else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * warm

    def trained(self) -> list[tuple[str, torch.nn.Parameter]]:
        """What has a gradient, by name."""
        return [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]

    def state(self) -> dict[str, Tensor]:
        """Every tensor that the next step depends on, by name: the live ones, dealt where parameters are.

        `weights.NAME`, and once a step was taken `exp_avg.NAME` and `exp_avg_sq.NAME`, AdamW's two means. With
        `num_updates`, and the frozen weights where only adapters are trained, that is all of the state.
        """
        found: dict[str, Tensor] = {}
        for name, parameter in self.trained():
            found[f"weights.{name}"] = parameter.detach()
            found |= {f"{kind}.{name}": self.optimizer.state[parameter][kind] for kind in MOMENTS if self.num_updates}
        return found

    def make_room(self, num_updates: int) -> dict[str, Tensor]:
        """The state of after `num_updates` optimizer steps, for the caller to fill in."""
        self.num_updates = num_updates
        self.optimizer.state.clear()
        for _, parameter in self.trained() if num_updates else ():
            moments = {kind: torch.zeros_like(parameter) for kind in MOMENTS}
            self.optimizer.state[parameter] = {
                "step": torch.tensor(float(num_updates), device=parameter.device),
                **moments,
            }
        return self.state()


def _policy(model: CausalLM | Policy) -> Policy:
    return model if isinstance(model, Policy) else Policy(model)


def _spread(values: Sequence[float], bin_: Bin) -> Tensor:
    """One value a sample to float32 [sum of T], one a trained token."""
    return torch.tensor(values).repeat_interleave(torch.tensor(bin_.num_outputs))
