"""The pass rate of a model on given problems, while the base model is made: up to which rate it is trained.

In: a model, an environment, problems. Out: the share of sampled completions, one a problem, whose
score is exactly 1. Deterministic in (weights, problems, seed) on one machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from protocol.environments.base import Environment, Problem
from protocol.forward import CausalLM
from protocol.packing import Packing

EVALUATION_BATCH = 128


@torch.inference_mode()
def sample(
    model: CausalLM,
    prompts: Sequence[list[int]],
    eos_ids: Sequence[int],
    max_new_tokens: int,
    generator: torch.Generator,
) -> list[list[int]]:
    """One completion a prompt at temperature 1, EOS included where it came before `max_new_tokens`."""
    lengths = [len(prompt) for prompt in prompts]
    tokens = torch.tensor([token for prompt in prompts for token in prompt])
    hidden, cache = model.prefill(tokens, lengths, max(lengths) + max_new_tokens)
    hidden, rows = hidden[Packing.of(lengths).last_rows], torch.arange(len(prompts))
    completions: list[list[int]] = [[] for _ in prompts]
    for position in range(max_new_tokens):
        chosen = _draw(model.logits(hidden), generator)
        for row, token in zip(rows.tolist(), chosen.tolist(), strict=True):
            completions[row].append(token)
        going = torch.nonzero(~torch.isin(chosen, torch.tensor(eos_ids))).flatten()
        if not len(going) or position == max_new_tokens - 1:
            break
        if len(going) < len(chosen):
            cache.keep(going)
            rows, chosen = rows[going], chosen[going]
        hidden = model.step(chosen, cache)
    return completions


def pass_rate(
    model: CausalLM, environment: Environment, problems: Sequence[Problem], max_new_tokens: int, seed: int = 0
) -> float:
    """Share of problems passed, one sample each at temperature 1."""
    generator = torch.Generator().manual_seed(seed)
    num_passed = 0
    for start in range(0, len(problems), EVALUATION_BATCH):
        part = problems[start : start + EVALUATION_BATCH]
        prompts = [environment.prompt(problem) for problem in part]
        completions = sample(model, prompts, environment.tokenizer.eos_ids, max_new_tokens, generator)
        num_passed += sum(environment.is_pass(*pair) for pair in zip(part, completions, strict=True))
    return num_passed / len(problems)


def _draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    """[B, V] logits to int64 [B] tokens by Gumbel-max."""
    return (logits.float() + _gumbel(logits.shape, generator)).argmax(-1)


def _gumbel(shape: torch.Size, generator: torch.Generator) -> Tensor:
    # Exponential noise is never 0, so its logarithm is finite.
    return -torch.empty(shape).exponential_(generator=generator).log()
