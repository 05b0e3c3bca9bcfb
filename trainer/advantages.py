"""Rewards and advantages, derived anew: nothing of the worker's arithmetic is used.

In: rollouts whose task rewards a verifier has re-run. Out: total rewards, and one advantage a rollout.
Sources: INTELLECT-2 (arXiv:2505.07291), section 3.3; GRPO (arXiv:2402.03300), section 4.1.2.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from protocol.rollouts import Rollout
from protocol.rules import LengthRules

SMALLEST_STD = 1e-6
AdvantageScale = Literal["std", "none"]


def length_penalty(rollout: Rollout, lengths: LengthRules) -> float:
    """α · |target − length| where the prompt set a target, else 0."""
    if rollout.target_length < 0:
        return 0.0
    return lengths.penalty_per_token * abs(rollout.target_length - rollout.num_units)


def total_reward(rollout: Rollout, lengths: LengthRules) -> float:
    """R = task reward − length penalty."""
    return rollout.task_reward - length_penalty(rollout, lengths)


def group_advantages(rewards: Tensor, scale: AdvantageScale = "std") -> Tensor:
    """(R − mean) / (std + 1e-6) within each group, std with ddof 1: float [groups, size] to the same shape.

    "none" leaves the division out (Dr. GRPO, arXiv:2503.20783): groups of little variance don't weigh more.
    """
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    if scale == "none":
        return centred
    return centred / (rewards.std(dim=1, keepdim=True, correction=1) + SMALLEST_STD)
