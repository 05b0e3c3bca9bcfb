"""Rewards: re-run in the environment, to the last bit of a float32."""

from dataclasses import replace

import numpy as np
import pytest

from protocol.checks import rewards
from protocol.environments.base import Judgement, Problem
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import Rollout
from tests.unit.verifier.verifier_world import World


def test_the_environments_rewards_pass(world: World, honest: list[Rollout]) -> None:
    assert rewards.check(world.case(honest)).outcome == Outcome.ACCEPT


@pytest.mark.parametrize("index", [0, -1])
def test_one_flipped_reward_is_slashed(world: World, honest: list[Rollout], index: int) -> None:
    honest[index] = replace(honest[index], task_reward=1.0 - honest[index].task_reward)
    result = rewards.check(world.case(honest))
    assert (result.outcome, result.reason) == (Outcome.SLASH, RejectReason.REWARD_MISMATCH)


def test_a_hair_is_a_lie_as_well(world: World, honest: list[Rollout]) -> None:
    honest[0] = replace(honest[0], task_reward=float(np.nextafter(np.float32(honest[0].task_reward), np.float32(2))))
    assert rewards.check(world.case(honest)).outcome == Outcome.SLASH


def test_where_rewards_are_not_deterministic_a_difference_only_drops(world: World, honest: list[Rollout]) -> None:
    class Judged(type(world.environment)):  # type: ignore[misc]
        deterministic = False

    environment = object.__new__(Judged)
    environment.__dict__.update(world.environment.__dict__)
    honest[0] = replace(honest[0], task_reward=0.5)
    result = rewards.check(world.case(honest, environment=environment))
    assert (result.outcome, result.reason) == (Outcome.DROP, RejectReason.REWARD_MISMATCH)


@pytest.mark.parametrize(
    ("claim", "outcome"), [(0.0, Outcome.ACCEPT), (1.0, Outcome.ACCEPT), (0.5, Outcome.DROP)]
)  # fmt: skip
def test_at_a_time_limits_border_both_sides_pass_and_no_claim_is_slashed(
    world: World, honest: list[Rollout], claim: float, outcome: Outcome
) -> None:
    class AtTheBorder(type(world.environment)):  # type: ignore[misc]
        def _judge(self, problem: Problem, answer: str | None) -> Judgement:
            return Judgement(0.0, other=1.0, certain=False)

    environment = object.__new__(AtTheBorder)
    environment.__dict__.update(world.environment.__dict__)
    rollouts = [replace(rollout, task_reward=claim) for rollout in honest]
    assert rewards.check(world.case(rollouts, environment=environment)).outcome == outcome
