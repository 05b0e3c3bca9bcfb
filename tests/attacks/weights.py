"""Models that aren't the policy version asked for, made from the one that is.

In: the right model. Out: others: cut short, rounded, shaken, one step of training away.
"""

from __future__ import annotations

import torch
from torch import Tensor

from protocol.forward import CausalLM
from protocol.rollouts import Rollout
from trainer.advantages import group_advantages
from trainer.learner import Learner, RecipeConfig
from trainer.samples import TrainingBatch, sample_of


def shallow(model: CausalLM, num_layers: int) -> CausalLM:
    """The same without its last layers but one: smaller, and still of the same tongue."""
    last = model.config.num_hidden_layers - 1
    kept = [*range(num_layers - 1), last]
    names = {f"model.layers.{old}.": f"model.layers.{new}." for new, old in enumerate(kept)}
    weights = {}
    for name, tensor in model.weights().items():
        prefix = ".".join(name.split(".")[:3]) + "."
        if prefix in names:
            weights[names[prefix] + name.removeprefix(prefix)] = tensor
        elif not name.startswith("model.layers."):
            weights[name] = tensor
    config = model.config.model_copy(update={"num_hidden_layers": num_layers})
    return CausalLM.of(config, weights).eval()


def shaken(model: CausalLM, share: float) -> CausalLM:
    """Every weight off by a random amount of about `share` of its tensor's spread."""
    source = torch.Generator().manual_seed(0)
    weights = {
        name: w + share * w.std() * torch.randn(w.shape, generator=source) for name, w in model.weights().items()
    }
    return CausalLM.of(model.config, weights).eval()


def rounded(model: CausalLM, num_bits: int, group: int = 0) -> CausalLM:
    """Matrices rounded to `num_bits` with one scale a row, or one for each `group` values of a row."""
    weights = {n: _rounded(w, num_bits, group) if w.dim() == 2 else w for n, w in model.weights().items()}
    return CausalLM.of(model.config, weights).eval()


def _rounded(w: Tensor, num_bits: int, group: int) -> Tensor:
    pieces = w.unflatten(1, (-1, group)) if group else w[:, None]
    scale = pieces.abs().amax(dim=-1, keepdim=True).clamp(min=1e-8) / (2 ** (num_bits - 1) - 1)
    return ((pieces / scale).round() * scale).flatten(1)


def in_bfloat16(model: CausalLM) -> CausalLM:
    """The same weights, computed with in bfloat16."""
    return CausalLM.of(model.config, model.weights(), torch.bfloat16).eval()


def trained(model: CausalLM, rollouts: list[Rollout], group_size: int, learning_rate: float, steps: int) -> CausalLM:
    """`steps` optimizer steps of the trainer away, on these rollouts; rounded to bf16 as policy versions are."""
    recipe = RecipeConfig(learning_rate=learning_rate, warmup_steps=0, optimizer_steps=steps, grad_norm_clip=1.0)
    learner = Learner(CausalLM.of(model.config, model.weights()), recipe)
    samples = [sample_of(r, a) for r, a in zip(rollouts, _advantages(rollouts, group_size), strict=True)]
    longest = max(sample.num_outputs for sample in samples)
    learner.learn(TrainingBatch(samples, group_size, temperature=1.0, max_new_tokens=longest), 0)
    return CausalLM.of(model.config, learner.model.weights(torch.bfloat16)).eval()


def _advantages(rollouts: list[Rollout], group_size: int) -> list[float]:
    """GRPO's; where no group's rewards differ, every other rollout counts as the better one."""
    rewards = torch.tensor([r.task_reward for r in rollouts]).reshape(-1, group_size)
    if bool((rewards == rewards[:, :1]).all()):
        rewards = (torch.arange(rewards.numel()) % 2).float().reshape(rewards.shape)
    advantages: list[float] = group_advantages(rewards).flatten().tolist()
    return advantages
