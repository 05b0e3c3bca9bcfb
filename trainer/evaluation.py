"""How good a model is at problems: passes out of k samples each, made as a worker makes rollouts.

In: an engine with weights, an environment, problems, the pool's rules, a seed. Out: passes a problem, and avg@k and
pass@k over them. The same weights and seed give the same passes. Prompts are a worker's: where the rules have target
lengths, each problem is asked for one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from protocol.canonical import keccak256
from protocol.engines.base import Engine, Request, generate
from protocol.environments.base import NO_TARGET_LENGTH, Environment, Problem
from protocol.randomness import SeedStream
from protocol.rules import Rules

EVALUATION_SEED = 1


@dataclass(frozen=True)
class PassRates:
    """Over problems with `num_samples` completions each, at the rules' temperature."""

    num_problems: int
    num_samples: int
    average: float
    """avg@k: the share of completions that pass."""
    at_least_once: float
    """pass@k: the share of problems with a completion that passes."""


def pass_counts(
    engine: Engine,
    environment: Environment,
    problems: Sequence[Problem],
    rules: Rules,
    num_samples: int,
    seed: int,
    on_completion: Callable[[], None] = lambda: None,
) -> list[int]:
    """Completions out of `num_samples` that score exactly 1, problem by problem.

    A problem's noise and target length follow from `seed` and its own index: it has the same passes in any company.
    """
    passes = [0] * len(problems)
    wanted: list[Request] = []
    places: dict[int, int] = {}
    for place, problem in enumerate(problems):
        for request in _requests(environment, problem, rules, num_samples, seed):
            places[id(request)] = place
            wanted.append(request)
    for completion in generate(engine, wanted):
        place = places[id(completion.request)]
        passes[place] += environment.is_pass(problems[place], completion.output_tokens.tolist())
        on_completion()
    return passes


def pass_rates(counts: Sequence[int], num_samples: int) -> PassRates:
    """Raises ValueError for no problems."""
    return PassRates(
        num_problems=len(counts),
        num_samples=num_samples,
        average=float(np.mean(counts)) / num_samples,
        at_least_once=float(np.mean([count > 0 for count in counts])),
    )


def _requests(environment: Environment, problem: Problem, rules: Rules, num_samples: int, seed: int) -> list[Request]:
    noise = keccak256(b"proofpool/evaluation/v1\n" + seed.to_bytes(8, "big") + problem.problem_id.encode())
    targets = rules.lengths.targets
    target = targets[SeedStream(noise, "target").below(len(targets))] if targets else NO_TARGET_LENGTH
    prompt = np.array(environment.prompt(problem, target), dtype=np.int32)
    ends = frozenset(environment.tokenizer.eos_ids)
    return [Request(noise, sample, prompt, rules.sampling, ends) for sample in range(num_samples)]
