"""A whole optimizer step, in float64: its gradient and value against the formulas on samples that go through alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from protocol import packing
from protocol.forward import CausalLM
from tests.unit.trainer.conftest import GROUP_SIZE, VOCABULARY
from trainer import head
from trainer.learner import Learner, RecipeConfig
from trainer.samples import Sample, TrainingBatch

TEMPERATURE, MAX_NEW_TOKENS = 0.8, 20
EVERYTHING: dict[str, Any] = {
    "clip": {"epsilon_high": 0.3},
    "kl_coefficient": 0.1,
    "entropy_coefficient": 0.05,
    "importance_cap": 1.5,
}


@dataclass(frozen=True)
class Step:
    """What a step comes to: `gradient` of all parameters, flat, before it is cut."""

    objective: float
    gradient: Tensor


def make_batch(num_groups: int = 3) -> TrainingBatch:
    generator = torch.Generator().manual_seed(7)
    samples = []
    for group in range(num_groups):
        prompt = torch.randint(0, VOCABULARY, (3 + 6 * group,), generator=generator)
        for member in range(GROUP_SIZE):
            length = 1 + (5 * member + 3 * group) % MAX_NEW_TOKENS
            outputs = torch.randint(0, VOCABULARY, (length,), generator=generator)
            worker = -torch.rand(length, generator=generator) * 4
            samples.append(Sample(prompt, outputs, worker, float(member - 1.5) / 2, 0.0, 0.0, 0))
    return TrainingBatch(samples, GROUP_SIZE, TEMPERATURE, MAX_NEW_TOKENS)


@pytest.fixture
def reference(make_model: Callable[[], CausalLM]) -> CausalLM:
    model = make_model().double()
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.mul_(1 + 0.1 * (index % 3))
    return model


@pytest.fixture
def take(make_model: Callable[[], CausalLM], reference: CausalLM) -> Callable[..., Step]:
    """The learner's step on a batch, under the recipe's `objective`."""

    def step(batch: TrainingBatch, objective: dict[str, Any], max_tokens: int = 10_000) -> Step:
        settings = {"optimizer_steps": 1, "grad_norm_clip": 1e9, "max_tokens": max_tokens, "objective": objective}
        learner = Learner(make_model().double(), RecipeConfig.model_validate(settings), reference)
        figures = learner.learn(batch, 0)
        assert (figures.ratio_p01, figures.ratio_p99, figures.kl_to_old) == (1.0, 1.0, 0.0)
        return Step(figures.objective, gradient_of(learner.model))

    return step


def gradient_of(model: CausalLM) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def written_out(model: CausalLM, reference: CausalLM, batch: TrainingBatch, objective: dict[str, Any]) -> Step:
    """Each sample alone, its whole logits, and the formulas with r = 1: nothing of the trainer's."""
    lengths = [sample.num_outputs for sample in batch.samples]
    total = torch.zeros((), dtype=torch.float64)
    for sample in batch.samples:
        logs, theirs = (whole_logs(m, sample) for m in (model, reference))
        logprobs, others = (x.gather(1, sample.outputs[:, None])[:, 0] for x in (logs, theirs))
        values = torch.exp(logprobs - logprobs.detach()) * sample.advantage
        if cap := objective.get("importance_cap"):
            values = values * torch.exp(logprobs.detach() - sample.worker_logprobs).clamp(max=cap)
        inverse = torch.exp(others.detach() - logprobs)
        values = values - objective.get("kl_coefficient", 0) * (inverse - inverse.log() - 1)
        values = values - objective.get("entropy_coefficient", 0) * (logs.exp() * logs).sum(-1)
        share = {
            "token": 1 / sum(lengths),
            "sequence": 1 / len(lengths) / sample.num_outputs,
            "constant": 1 / len(lengths) / MAX_NEW_TOKENS,
        }[objective.get("normalisation", "token")]
        total = total + share * values.sum()
    (-total).backward()
    return Step(float(total.detach()), gradient_of(model))


def whole_logs(model: CausalLM, sample: Sample) -> Tensor:
    hidden = model(sample.tokens, [len(sample)])[len(sample.prompt) - 1 : -1]
    return torch.log_softmax(model.logits(hidden) / TEMPERATURE, -1)


def assert_same(first: Step, second: Step, tolerance: float = 1e-6) -> None:
    assert float(second.gradient.abs().max()) > 0.01
    assert first.objective == pytest.approx(second.objective, rel=tolerance, abs=tolerance)
    torch.testing.assert_close(first.gradient, second.gradient, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("normalisation", ["token", "sequence", "constant"])
@pytest.mark.parametrize("options", [{}, EVERYTHING])
def test_a_step_is_the_formulas(
    make_model: Callable[[], CausalLM],
    reference: CausalLM,
    take: Callable[..., Step],
    normalisation: str,
    options: dict[str, Any],
) -> None:
    objective = options | {"normalisation": normalisation}
    assert_same(take(make_batch(), objective), written_out(make_model().double(), reference, make_batch(), objective))


@pytest.mark.parametrize("max_tokens", [1, 33, 90])
@pytest.mark.parametrize("normalisation", ["token", "sequence", "constant"])
def test_neither_packing_nor_micro_batches_change_a_step(
    take: Callable[..., Step], monkeypatch: pytest.MonkeyPatch, max_tokens: int, normalisation: str
) -> None:
    objective = EVERYTHING | {"normalisation": normalisation}
    together = take(make_batch(), objective)
    monkeypatch.setattr(packing, "SHORTEST_UNMASKED", 9)
    monkeypatch.setattr(head, "LOGITS_BYTES", 4 * VOCABULARY * 3)
    assert_same(take(make_batch(), objective, max_tokens), together)


def test_neither_does_the_order_of_samples(take: Callable[..., Step]) -> None:
    batch = make_batch()
    groups = [batch.samples[start : start + GROUP_SIZE] for start in range(0, len(batch.samples), GROUP_SIZE)]
    turned = [sample for group in reversed(groups) for sample in group[2:] + group[:2]]
    assert_same(take(replace(batch, samples=turned), EVERYTHING), take(batch, EVERYTHING))
    assert not torch.allclose(
        take(replace(batch, samples=turned[:-4]), EVERYTHING).gradient, take(batch, EVERYTHING).gradient
    )


def test_later_optimizer_steps_hold_to_the_policy_before_the_first(make_model: Callable[[], CausalLM]) -> None:
    """Their ratios are against weights that are gone: were they the step's own, all would be 1."""
    recipe = RecipeConfig(optimizer_steps=3, learning_rate=0.01, warmup_steps=0, grad_norm_clip=1e9)
    learner, batch = Learner(make_model(), recipe), make_batch()
    before = learner.logprobs(batch)
    figures = learner.learn(batch, 0)
    assert figures.ratio_p01 < 1 < figures.ratio_p99
    assert figures.kl_to_old > 0
    worker = torch.cat([sample.worker_logprobs for sample in batch.samples])
    difference = worker - torch.cat(before)
    divergence = (torch.expm1(difference) - difference).mean()
    # k3(old ‖ worker) over all samples: the old log-probs are those of the start, in every optimizer step.
    assert figures.kl_to_worker == pytest.approx(float(divergence), rel=1e-4)
    bounded = difference.clamp(-1, 1)
    assert figures.kl_to_worker_bounded == pytest.approx(float((torch.expm1(bounded) - bounded).mean()), rel=1e-4)
    ordered = torch.exp(-difference).sort().values
    assert figures.worker_ratio_p50 == pytest.approx(float(ordered[round(0.5 * (len(ordered) - 1))]), rel=1e-4)


@pytest.mark.parametrize("num_unlikely", [0, 1])
def test_one_unlikely_token_rules_the_estimate_and_not_what_is_bounded(
    make_learner: Callable[..., Learner], num_unlikely: int
) -> None:
    """All tokens are 0.1 nats from the worker's; one may be 12, as where the policy has left it behind."""
    learner, batch = make_learner(optimizer_steps=1), make_batch()
    claimed = learner.logprobs(batch)
    samples = [
        replace(sample, worker_logprobs=logprobs + 0.1) for sample, logprobs in zip(batch.samples, claimed, strict=True)
    ]
    if num_unlikely:
        samples[0].worker_logprobs[0] += 11.9
    figures = learner.learn(replace(batch, samples=samples), 0)
    ordinary = math.expm1(0.1) - 0.1
    assert figures.kl_to_worker_bounded < 4 * ordinary
    assert (figures.kl_to_worker > 1000 * ordinary) == bool(num_unlikely)
    assert figures.worker_ratio_p50 == pytest.approx(math.exp(-0.1), rel=1e-4)
    assert figures.worker_ratio_p99 == pytest.approx(math.exp(-0.1), rel=1e-4)
