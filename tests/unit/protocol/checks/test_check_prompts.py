"""Prompts: those that the seed names, and no others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocol.checks import prompts
from protocol.environments.registry import load_environment
from protocol.prompts import task_prompts
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from protocol.rules import LengthRules
from tests.unit.verifier.verifier_world import World


def found(world: World, rollouts: list[Rollout], counter: int = 0) -> tuple[int, str | None]:
    result = prompts.check(world.case(rollouts, counter))
    return result.outcome, result.reason


def test_the_seeds_prompts_pass(world: World, honest: list[Rollout]) -> None:
    assert found(world, honest) == (Outcome.ACCEPT, None)


def test_prompts_of_another_task_are_slashed(world: World, honest: list[Rollout]) -> None:
    """The same file, handed in for another counter."""
    assert found(world, honest, counter=5) == (Outcome.SLASH, RejectReason.WRONG_PROMPTS)


def test_one_easier_question_is_enough(world: World, honest: list[Rollout]) -> None:
    easier = task_prompts(world.rules, world.environment, world.seed(counter=3))[0]
    chosen = replace(honest[-1], input_tokens=easier.tokens, problem_id=easier.problem_id)
    assert found(world, [*honest[:-1], chosen]) == (Outcome.SLASH, RejectReason.WRONG_PROMPTS)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: {"input_tokens": r.input_tokens[:-1]},
        lambda r: {"input_tokens": np.append(r.input_tokens, 4).astype(np.int32)},
        lambda r: {"problem_id": "chain_sum:-1"},
        lambda r: {"task_type": "other"},
        lambda r: {"target_length": 100},
    ],
)
def test_every_part_of_the_question_counts(
    world: World, honest: list[Rollout], change: Callable[[Rollout], dict[str, Any]]
) -> None:
    altered = [replace(honest[0], **change(honest[0])), *honest[1:]]
    assert found(world, altered) == (Outcome.SLASH, RejectReason.WRONG_PROMPTS)


@pytest.mark.parametrize("is_chosen", [False, True])
def test_a_group_of_an_easier_tier_than_the_seeds_is_slashed(
    world: World, honest: list[Rollout], is_chosen: bool
) -> None:
    tiers = [{"weight": 1, "only": [0, 1, 2]}, {"weight": 1, "only": [3, 4]}]
    rules, environment = world.rules.environment, world.environment
    tiered = load_environment(rules.name, rules.config | {"tiers": tiers}, environment.tokenizer)
    case = world.case(honest)
    case = replace(case, terms=replace(case.terms, environment=tiered))
    rows = []
    for index, rollout in enumerate(case.rollouts):
        prompt = case.terms.prompt_of(index)
        question = {"problem_id": prompt.problem_id, "task_type": prompt.task_type, "target_length": -1}
        rows.append(replace(rollout, input_tokens=prompt.tokens, **question))
    assert {int(row.problem_id.rpartition(":")[2]) for row in rows} <= {0, 1, 2, 3, 4}
    if is_chosen:
        other = next(tiered.problem(n) for n in range(5) if tiered.problem(n).problem_id != rows[-1].problem_id)
        tokens = np.array(tiered.prompt(other), dtype=np.int32)
        rows[-1] = replace(rows[-1], input_tokens=tokens, problem_id=other.problem_id)
    result = prompts.check(replace(case, rollouts=tuple(rows)))
    assert result.reason == (RejectReason.WRONG_PROMPTS if is_chosen else None)


@pytest.mark.parametrize("is_claimed", [False, True])
def test_an_easier_target_length_than_the_seeds_is_slashed(
    world: World, honest: list[Rollout], is_claimed: bool
) -> None:
    """Both are targets of the pool; a worker that picks the nearer one lowers its length penalty."""
    lengths = LengthRules(targets=(10, 1000), penalty_per_token=0.001)
    case = world.case(honest, rules=world.rules.model_copy(update={"lengths": lengths}))
    rows = []
    for index, rollout in enumerate(case.rollouts):
        prompt = case.terms.prompt_of(index)
        rows.append(replace(rollout, input_tokens=prompt.tokens, target_length=prompt.target_length))
    assert {row.target_length for row in rows} == {10, 1000}
    if is_claimed:
        rows[-1] = replace(rows[-1], target_length=1010 - rows[-1].target_length)
    result = prompts.check(replace(case, rollouts=tuple(rows)))
    expected = (Outcome.SLASH, RejectReason.WRONG_PROMPTS) if is_claimed else (Outcome.ACCEPT, None)
    assert (result.outcome, result.reason) == expected
