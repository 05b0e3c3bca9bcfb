"""The objective: values by hand, flat regions, advantages."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.loss import ClipConfig, group_advantages, objective, token_logprobs

CLIP = ClipConfig()


def value_and_gradient(ratio: float, advantage: float) -> tuple[float, float]:
    logprob = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    value = objective(
        logprob, torch.zeros(1, dtype=torch.float64), torch.tensor([advantage], dtype=torch.float64), CLIP
    )
    value.sum().backward()
    assert logprob.grad is not None
    return float(value.detach()), float(logprob.grad)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "gradient"),
    [
        (1.0, 1.0, 1.0, 1.0),
        (1.1, 2.0, 2.2, 2.2),
        (1.5, 1.0, 1.2, 0.0),  # A > 0, r > 1 + eps: flat
        (0.5, 1.0, 0.5, 0.5),  # A > 0, r < 1 - eps: pulled back
        (0.5, -1.0, -0.8, 0.0),  # A < 0, r < 1 - eps: flat
        (2.0, -1.0, -2.0, -2.0),  # A < 0, 1 + eps < r < delta: pushed down
        (9.0, -1.0, -4.0, 0.0),  # A < 0, r > delta: bounded and flat
    ],
)
def test_each_region_of_the_two_sided_clip(ratio: float, advantage: float, value: float, gradient: float) -> None:
    assert value_and_gradient(ratio, advantage) == pytest.approx((value, gradient), abs=1e-12)


@given(st.floats(0.01, 50), st.floats(-3, 3).filter(lambda a: abs(a) > 0.01))
def test_the_value_is_bounded_on_both_sides(ratio: float, advantage: float) -> None:
    value, gradient = value_and_gradient(ratio, advantage)
    assert -CLIP.delta * abs(advantage) - 1e-9 <= value <= (1 + CLIP.epsilon) * abs(advantage) + 1e-9
    flat = (advantage > 0 and ratio > 1.2001) or (advantage < 0 and (ratio > 4.001 or ratio < 0.7999))
    assert gradient == 0 if flat else True


def test_advantages_are_centred_scaled_and_per_group() -> None:
    advantages = group_advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0], [5.0, 5.0, 5.0, 5.0]]))
    std = math.sqrt(1 / 3)  # ddof 1
    assert advantages[0].tolist() == pytest.approx([0.5 / std, -0.5 / std, -0.5 / std, 0.5 / std], rel=1e-5)
    assert advantages[1].tolist() == [0.0] * 4


def test_log_probs_are_those_of_the_tempered_softmax() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0]], dtype=torch.float64)
    logprobs, entropy = token_logprobs(logits, torch.tensor([1]), temperature=2.0)
    weights = [math.exp(1.0), 1.0, math.exp(-0.5)]
    p = [w / sum(weights) for w in weights]
    assert float(logprobs[0]) == pytest.approx(math.log(p[1]))
    assert float(entropy[0]) == pytest.approx(-sum(x * math.log(x) for x in p))
