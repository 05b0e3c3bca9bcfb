"""Pairs of successive policy versions of a real training: eight optimizer steps of GRPO apart, in bf16 as published.

In: a world (the tiny model's, or SmolLM2's). Out: for each learning rate, and for masters both as they are early and
late in a run, the version before and the version after. Rollouts are the model's own; a rollout's reward is the share
of its tokens that differ from each other, so that every group has some variance. All pairs start from the same 32
optimizer steps of warm-up, taken at 1e-6:

    fresh    masters are what the base model's bf16 values became in the warm-up, drift in proportion to the rate
    spread   those, moved to a uniformly drawn place inside their bf16 cells: where they lie late in a run
    steady   spread masters that each go the full learning rate the same way eight times: no run can change more
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from protocol.forward import CausalLM
from protocol.rollouts import Rollout
from protocol.rules import SamplingRules
from protocol.tokenizer import Tokenizer
from testnet.task import testnet_environment
from tests.unit.verifier.verifier_world import BASE_MODEL, World, make_rules
from tests.worlds.smollm2 import make_smollm2_world
from trainer.learner import Learner, RecipeConfig
from trainer.samples import TrainingBatch, batch_of

RATES = (3e-7, 1e-6, 3e-6)
WARMUP_RATE = 1e-6
WARMUP_BATCHES = 4
OPTIMIZER_STEPS = 8
SEED = 0
Masters = Literal["fresh", "spread", "steady"]
Weights = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Pair:
    """`old` and `new`: bf16 tensors by name."""

    rate: float
    masters: Masters
    old: Weights
    new: Weights


def tiny_world() -> World:
    environment = testnet_environment(Tokenizer.load(BASE_MODEL))
    rules = make_rules(environment, groups_per_task=16)
    return World(rules, environment, BASE_MODEL, CausalLM.load(BASE_MODEL, torch.float32).eval())


def smollm2_world(folder: Path) -> World:
    """Eight optimizer steps of one group each: four rollouts of 32 tokens."""
    sampling = SamplingRules(max_new_tokens=32)
    return make_smollm2_world(folder, group_size=4, groups_per_task=8, sampling=sampling)


def version_pairs(world: World, rates: Sequence[float] = RATES) -> Iterator[Pair]:
    """One pair after the other, each learning rate with each kind of masters."""
    run = _Run(world)
    for rate in rates:
        for masters in ("fresh", "spread"):
            yield run.pair(rate, masters)
        yield run.steady_pair(rate)


class _Run:
    """A learner after its warm-up, put back there before each pair."""

    def __init__(self, world: World) -> None:
        base = CausalLM.of(world.model.config, world.model.weights(), torch.float32)
        self._learner = Learner(base, RecipeConfig(learning_rate=WARMUP_RATE))
        self._base = {name: p.detach().clone() for name, p in self._learner.trained()}
        for counter in range(WARMUP_BATCHES):
            self._learner.learn(_batch(world, counter), 0)
        self._batch = _batch(world, WARMUP_BATCHES)
        self._warm = {name: value.clone() for name, value in self._learner.state().items()}
        self._num_updates = self._learner.num_updates

    def pair(self, rate: float, masters: Masters) -> Pair:
        self._restart(rate, masters)
        old = self._published()
        self._learner.recipe = self._learner.recipe.model_copy(update={"learning_rate": rate})
        self._learner.learn(self._batch, 0)
        return Pair(rate, masters, old, self._published())

    def steady_pair(self, rate: float) -> Pair:
        self._restart(rate, "spread")
        old = self._published()
        with torch.no_grad():
            for name, parameter in self._learner.trained():
                parameter -= OPTIMIZER_STEPS * rate * self._warm[f"exp_avg.{name}"].sign()
        return Pair(rate, "steady", old, self._published())

    @torch.no_grad()
    def _restart(self, rate: float, masters: Masters) -> None:
        generator = torch.Generator().manual_seed(SEED)
        for name, live in self._learner.make_room(self._num_updates).items():
            live.copy_(self._warm[name])
            if not name.startswith("weights."):
                continue
            base = self._base[name.removeprefix("weights.")]
            live.copy_(base + (live - base) * (rate / WARMUP_RATE))
            if masters == "spread":
                live += cell_width(base) * (torch.rand(base.shape, generator=generator) - 0.5)

    def _published(self) -> Weights:
        return {name: p.detach().to(torch.bfloat16) for name, p in self._learner.trained()}


def cell_width(values: Tensor) -> Tensor:
    """Distance of neighbouring bf16 values at each float32 value: 8 bits of precision."""
    _, exponents = torch.frexp(values)
    return torch.ldexp(torch.ones_like(values), exponents - 8)


def _batch(world: World, counter: int) -> TrainingBatch:
    rollouts = world.rollouts(world.completions(counter), counter)
    return batch_of([replace(rollout, task_reward=_reward(rollout)) for rollout in rollouts], world.rules)


def _reward(rollout: Rollout) -> float:
    tokens = rollout.output_tokens.tolist()
    return len(set(tokens)) / len(tokens)
