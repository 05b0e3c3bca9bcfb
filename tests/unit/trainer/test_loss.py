"""The objective: values by hand, flat regions, gradients against autograd of the formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from trainer.loss import (
    ClipConfig,
    ObjectiveConfig,
    TokenRows,
    clipped_values,
    importance,
    k3,
    token_shares,
    token_values,
)

CLIP = ClipConfig()


def float64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def value_and_gradient(ratio: float, advantage: float, clip: ClipConfig = CLIP) -> tuple[float, float]:
    logprob = float64(math.log(ratio)).requires_grad_()
    value = clipped_values(logprob, float64(0), float64(advantage), clip)
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


def test_without_delta_the_value_of_a_bad_token_has_no_bound() -> None:
    one_sided = ClipConfig(delta=None)
    assert value_and_gradient(9.0, -1.0, one_sided) == pytest.approx((-9.0, -9.0))
    assert value_and_gradient(1.5, 1.0, one_sided) == pytest.approx((1.2, 0.0))


def test_clip_higher_moves_the_upper_edge_only() -> None:
    higher = ClipConfig(epsilon=0.2, epsilon_high=0.28)
    assert value_and_gradient(1.25, 1.0, higher) == pytest.approx((1.25, 1.25))
    assert value_and_gradient(1.3, 1.0, higher) == pytest.approx((1.28, 0.0))
    assert value_and_gradient(0.79, -1.0, higher) == pytest.approx((-0.8, 0.0))


def test_a_delta_inside_the_clip_is_refused() -> None:
    with pytest.raises(ValidationError, match="would clip first"):
        ClipConfig(epsilon=0.5, delta=1.2)
    assert ClipConfig(epsilon=0.5, delta=1.5).most == 1.5


@given(st.floats(0.01, 50), st.floats(-3, 3).filter(lambda a: abs(a) > 0.01))
def test_the_value_is_bounded_on_both_sides(ratio: float, advantage: float) -> None:
    assert CLIP.delta is not None
    value, gradient = value_and_gradient(ratio, advantage)
    assert -CLIP.delta * abs(advantage) - 1e-9 <= value <= (1 + CLIP.epsilon) * abs(advantage) + 1e-9
    flat = (advantage > 0 and ratio > 1.2001) or (advantage < 0 and (ratio > 4.001 or ratio < 0.7999))
    assert gradient == 0 if flat else True


def make_rows(num_tokens: int = 40, seed: int = 0) -> TokenRows:
    """Rows in every region of the clip, in float64."""
    generator = torch.Generator().manual_seed(seed)

    def noise(scale: float) -> Tensor:
        return torch.randn(num_tokens, dtype=torch.float64, generator=generator) * scale

    old = noise(1.0) - 3
    return TokenRows(
        logprobs=(old + noise(0.8)).requires_grad_(),
        entropy=noise(0.3).exp().requires_grad_(),
        old=old,
        worker=old + noise(0.5),
        advantages=noise(1.0),
        reference=old + noise(0.7),
    )


def written_out(rows: TokenRows, config: ObjectiveConfig) -> Tensor:
    """The formula of the module's first lines, a token at a time, with nothing of the product's."""
    assert rows.reference is not None
    values = []
    for index in range(len(rows.logprobs)):
        logprob, old, advantage = rows.logprobs[index], rows.old[index], float(rows.advantages[index])
        ratio = torch.exp(logprob - old)
        clip = config.clip
        high = 1 + (clip.epsilon if clip.epsilon_high is None else clip.epsilon_high)
        first = (ratio if clip.delta is None or ratio < clip.delta else float64(clip.delta)[0]) * advantage
        second = min(max(ratio, 1 - clip.epsilon), high) * advantage
        value = min(first, second)
        if config.importance_cap is not None:
            value = value * min(math.exp(float(old - rows.worker[index])), config.importance_cap)
        inverse = torch.exp(rows.reference[index] - logprob)
        value = value - config.kl_coefficient * (inverse - torch.log(inverse) - 1)
        values.append(value + config.entropy_coefficient * rows.entropy[index])
    return torch.stack([torch.as_tensor(value, dtype=torch.float64) for value in values])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clip": {"delta": None}},
        {"clip": {"epsilon_high": 0.28}},
        {"kl_coefficient": 0.05},
        {"entropy_coefficient": 0.01},
        {"importance_cap": 2.0},
        {"kl_coefficient": 0.1, "entropy_coefficient": 0.02, "importance_cap": 1.0, "clip": {"epsilon_high": 0.3}},
    ],
)
def test_values_and_gradients_are_autograds_of_the_formula(options: dict[str, Any]) -> None:
    config = ObjectiveConfig.model_validate(options)
    ours, theirs = make_rows(), make_rows()
    token_values(ours, config).sum().backward()
    expected = written_out(theirs, config)
    expected.sum().backward()
    torch.testing.assert_close(token_values(ours, config), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.logprobs.grad, theirs.logprobs.grad, rtol=1e-12, atol=1e-12)
    if config.entropy_coefficient:
        torch.testing.assert_close(ours.entropy.grad, theirs.entropy.grad, rtol=1e-12, atol=1e-12)
    else:
        assert ours.entropy.grad is None


def test_k3_is_never_negative_and_estimates_the_divergence_without_bias() -> None:
    policy, reference = float64(0.7, 0.2, 0.1), float64(0.5, 0.3, 0.2)
    estimates = k3(policy.log(), reference.log())
    assert (estimates >= 0).all()
    divergence = float((policy * (policy / reference).log()).sum())
    assert float((policy * estimates).sum()) == pytest.approx(divergence, abs=1e-12)
    assert float(k3(float64(-1.0), float64(-1.0))) == 0


def test_the_gradient_of_k3_pulls_to_the_reference() -> None:
    logprob = float64(-1.0, -3.0).requires_grad_()
    k3(logprob, float64(-2.0, -2.0)).sum().backward()
    assert logprob.grad is not None
    assert logprob.grad[0] > 0 > logprob.grad[1]


def test_importance_is_cut_and_has_no_gradient() -> None:
    old = float64(-1.0, -1.0).requires_grad_()
    weights = importance(old, float64(-1.2, -9.0), cap=2.0)
    assert weights.tolist() == pytest.approx([math.exp(0.2), 2.0])
    assert not weights.requires_grad


@pytest.mark.parametrize(
    ("normalisation", "shares"),
    [("token", [1 / 10] * 3), ("sequence", [1 / 6, 1 / 9, 1 / 15]), ("constant", [1 / 24] * 3)],
)
def test_shares_by_hand(normalisation: Any, shares: list[float]) -> None:
    assert token_shares([2, 3, 5], normalisation, max_tokens=8) == pytest.approx(shares)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_shares_add_up_to_one_but_for_the_constant(lengths: list[int]) -> None:
    def total(normalisation: Any) -> float:
        shares = token_shares(lengths, normalisation, max_tokens=50)
        return sum(share * length for share, length in zip(shares, lengths, strict=True))

    assert total("token") == pytest.approx(1)
    assert total("sequence") == pytest.approx(1)
    assert total("constant") == pytest.approx(sum(lengths) / (50 * len(lengths)))
