"""A step: what it moves, and that neither packing nor recomputing changes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from protocol.api import BatchOffer
from protocol.errors import ProofpoolError
from tests.unit.trainer.conftest import weights_of
from trainer.learner import Learner, RecipeConfig, changed
from trainer.samples import TrainingBatch

Offer = tuple[BatchOffer, bytes]


def test_steps_make_rewarded_completions_likelier(make_learner: Callable[..., Learner], batch: TrainingBatch) -> None:
    learner = make_learner()
    before = learner.logprobs(batch)
    for version in range(5):
        learner.learn(batch, version)
    after = learner.logprobs(batch)
    gain = [s.advantage * float((a - b).mean()) for s, a, b in zip(batch.samples, after, before, strict=True)]
    assert sum(gain) > 0


def test_without_advantage_nothing_moves(make_learner: Callable[..., Learner], batch: TrainingBatch) -> None:
    learner = make_learner(weight_decay=0.0)
    before = weights_of(learner)
    flat = [replace(sample, advantage=0.0) for sample in batch.samples]
    learner.learn(replace(batch, samples=flat), 0)
    assert torch.equal(weights_of(learner), before)


def test_a_step_is_the_same_however_it_is_packed(make_learner: Callable[..., Learner], batch: TrainingBatch) -> None:
    together, alone = make_learner(), make_learner(max_tokens=1)
    first, second = together.learn(batch, 0), alone.learn(batch, 0)
    assert first.objective == pytest.approx(second.objective, abs=1e-6)
    assert torch.allclose(weights_of(together), weights_of(alone), atol=1e-5)


def test_figures_describe_the_batch(make_learner: Callable[..., Learner], batch: TrainingBatch) -> None:
    figures = make_learner().learn(batch, 2)
    assert figures.num_rollouts == len(batch.samples)
    assert figures.mean_policy_lag == 2
    assert figures.mean_task_reward == pytest.approx(sum(s.task_reward for s in batch.samples) / len(batch.samples))
    assert figures.kl_to_old >= 0
    assert figures.entropy > 0


def test_what_changed_of_a_recipe_is_told_by_name() -> None:
    before = RecipeConfig()
    assert changed(before, RecipeConfig()) == {}
    now = RecipeConfig.model_validate(
        {"learning_rate": 1e-4, "objective": {"clip": {"delta": None}}, "lora": {"targets": ["q_proj"]}}
    )
    assert changed(before, now) == {
        "learning_rate": "3e-07 -> 0.0001",
        "lora.alpha": "None -> 32.0",
        "lora.rank": "None -> 16",
        "lora.seed": "None -> 0",
        "lora.targets": "None -> ['q_proj']",
        "objective.clip.delta": "4.0 -> None",
    }


def test_a_gradient_that_isnt_finite_moves_nothing_and_ends_the_step(
    make_learner: Callable[..., Learner], batch: TrainingBatch
) -> None:
    learner = make_learner(optimizer_steps=1)
    before = weights_of(learner)
    endless = replace(batch, samples=[replace(batch.samples[0], advantage=float("inf")), *batch.samples[1:]])
    with pytest.raises(ProofpoolError, match="gradient isn't finite") as refused:
        learner.learn(endless, 0)
    assert "its norm is nan" in refused.value.why or "its norm is inf" in refused.value.why
    assert torch.equal(weights_of(learner), before) and learner.num_updates == 0
    learner.learn(batch, 0)
    assert not torch.equal(weights_of(learner), before)


@pytest.mark.parametrize("betas", [(1.0, 0.99), (0.9, 2.0), (-0.1, 0.9)])
def test_momenta_that_no_optimizer_takes_are_refused(betas: tuple[float, float]) -> None:
    with pytest.raises(ValidationError, match="betas"):
        RecipeConfig(betas=betas)
    assert RecipeConfig(betas=(0.0, 0.999)).betas == (0.0, 0.999)
