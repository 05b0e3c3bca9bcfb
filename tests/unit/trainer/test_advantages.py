"""Rewards and advantages by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from protocol.rollouts import Rollout
from protocol.rules import LengthRules
from trainer.advantages import group_advantages, total_reward


def test_advantages_are_centred_scaled_and_per_group() -> None:
    advantages = group_advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0], [5.0, 5.0, 5.0, 5.0]]))
    std = math.sqrt(1 / 3)  # ddof 1
    assert advantages[0].tolist() == pytest.approx([0.5 / std, -0.5 / std, -0.5 / std, 0.5 / std], rel=1e-5)
    assert advantages[1].tolist() == [0.0] * 4


def test_without_scale_advantages_are_only_centred() -> None:
    assert group_advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), "none")[0].tolist() == [0.75, -0.25, -0.25, -0.25]


def test_length_penalty_counts_only_where_the_prompt_set_a_target(make_rollout: Callable[..., Rollout]) -> None:
    lengths = LengthRules(targets=(10,), penalty_per_token=0.1)
    assert total_reward(make_rollout(0, reward=1.0), lengths) == 1.0
    assert total_reward(make_rollout(0, reward=1.0, target_length=10), lengths) == pytest.approx(1.0 - 0.1 * 8)
