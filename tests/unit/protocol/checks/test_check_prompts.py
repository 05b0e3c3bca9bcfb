"""Prompts: those that the seed names, and no others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocol.checks import prompts
from protocol.prompts import task_prompts
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
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
