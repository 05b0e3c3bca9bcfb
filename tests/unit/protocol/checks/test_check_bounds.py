"""Bounds: each value at its limit passes, one past it doesn't."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocol.checks import bounds
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from protocol.rules import SamplingRules
from tests.unit.verifier.verifier_world import World

Change = Callable[[Rollout], dict[str, Any]]


def found(world: World, rollouts: list[Rollout], **header: Any) -> tuple[int, str | None]:
    result = bounds.check(world.case(rollouts, header=world.header().model_copy(update=header)))
    return result.outcome, result.reason


def token(index: int, value: int) -> Change:
    def change(rollout: Rollout) -> dict[str, Any]:
        tokens = rollout.output_tokens.copy()
        tokens[index] = value
        return {"output_tokens": tokens}

    return change


def logprob(value: float) -> Change:
    return lambda rollout: {"output_logprobs": np.full_like(rollout.output_logprobs, value)}


@pytest.mark.parametrize("change", [lambda r: {}, token(0, 0), token(0, 29), logprob(0.0), logprob(-50.0)])
def test_values_within_bounds_pass(world: World, honest: list[Rollout], change: Change) -> None:
    altered = [replace(honest[0], **change(honest[0])), *honest[1:]]
    assert found(world, altered) == (Outcome.ACCEPT, None)


@pytest.mark.parametrize(
    "change",
    [
        token(0, -1),
        token(-1, 30),
        token(0, 2**31 - 1),
        logprob(0.1),
        logprob(-1e30),
        lambda r: {"input_tokens": np.array([-5], dtype=np.int32)},
        lambda r: {"input_tokens": np.array([30], dtype=np.int32)},
        lambda r: {"step": 1},
        lambda r: {"task_reward": 3e38},
        lambda r: {
            "output_tokens": np.full(41, 5, dtype=np.int32),
            "output_logprobs": np.zeros(41, dtype=np.float32),
        },
    ],
)
def test_values_out_of_bounds_are_dropped(world: World, honest: list[Rollout], change: Change) -> None:
    altered = [*honest[:-1], replace(honest[-1], **change(honest[-1]))]
    assert found(world, altered) == (Outcome.DROP, RejectReason.VALUE_OUT_OF_BOUNDS)


def test_the_task_asks_for_this_many_rollouts(world: World, honest: list[Rollout]) -> None:
    assert found(world, honest[:-1]) == (Outcome.DROP, RejectReason.VALUE_OUT_OF_BOUNDS)


@pytest.mark.parametrize("header", [{"group_size": 4}, {"sampling": SamplingRules(max_new_tokens=40, temperature=0.7)}])
def test_the_header_names_the_rules(world: World, honest: list[Rollout], header: dict[str, Any]) -> None:
    assert found(world, honest, **header) == (Outcome.DROP, RejectReason.VALUE_OUT_OF_BOUNDS)


def test_what_the_header_has_otherwise_is_named(world: World, honest: list[Rollout]) -> None:
    header = world.header().model_copy(update={"group_size": 5})
    result = bounds.check(world.case(honest, header=header))
    assert result.detail == f"the file's header differs from the rules: group_size 5, not {world.rules.group_size}"
