"""The head in slices gives what the whole logits would, and so do its gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from trainer import head
from trainer.head import token_logprobs


def whole(hidden: Tensor, weight: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logs = torch.log_softmax(hidden @ weight.T / temperature, dim=-1)
    return logs.gather(1, tokens[:, None])[:, 0], -(logs.exp() * logs).sum(-1)


def make_inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(13, 6, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(9, 6, generator=generator).to(dtype).requires_grad_()
    return hidden, weight, torch.arange(13) % 9


def test_log_probs_are_those_of_the_tempered_softmax() -> None:
    hidden = torch.tensor([[1.0]], dtype=torch.float64)
    weight = torch.tensor([[2.0], [0.0], [-1.0]], dtype=torch.float64)
    logprobs, entropy = token_logprobs(hidden, weight, torch.tensor([1]), temperature=2.0)
    weights = [math.exp(1.0), 1.0, math.exp(-0.5)]
    p = [w / sum(weights) for w in weights]
    assert float(logprobs[0]) == pytest.approx(math.log(p[1]))
    assert float(entropy[0]) == pytest.approx(-sum(x * math.log(x) for x in p))


@pytest.mark.parametrize("rows_at_once", [1, 4, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_slices_change_neither_values_nor_gradients(
    monkeypatch: pytest.MonkeyPatch, rows_at_once: int, temperature: float
) -> None:
    monkeypatch.setattr(head, "LOGITS_BYTES", 4 * 9 * rows_at_once)
    ours, theirs = make_inputs(), make_inputs()
    pull = torch.linspace(-1, 2, 13, dtype=torch.float64)
    for compute, (hidden, weight, tokens) in ((token_logprobs, ours), (whole, theirs)):
        logprobs, entropy = compute(hidden, weight, tokens, temperature)
        (logprobs * pull + entropy * pull.square()).sum().backward()
    torch.testing.assert_close(token_logprobs(*ours, temperature), whole(*theirs, temperature))
    for mine, other in zip(ours[:2], theirs[:2], strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-10, atol=1e-10)


def test_a_token_of_no_chance_has_finite_entropy_and_gradients() -> None:
    hidden = torch.tensor([[1000.0]]).requires_grad_()
    weight = torch.tensor([[1.0], [-1.0]]).requires_grad_()
    logprobs, entropy = token_logprobs(hidden, weight, torch.tensor([0]), temperature=1.0)
    (logprobs + entropy).sum().backward()
    assert (float(logprobs.detach()), float(entropy.detach())) == (0.0, 0.0)
    assert hidden.grad is not None and weight.grad is not None
    assert hidden.grad.isfinite().all() and weight.grad.isfinite().all()


def test_bfloat16_weights_get_bfloat16_gradients_and_float32_log_probs() -> None:
    hidden, weight, tokens = make_inputs(torch.bfloat16)
    logprobs, _ = token_logprobs(hidden, weight, tokens, 1.0)
    logprobs.sum().backward()
    assert logprobs.dtype == torch.float32
    assert hidden.grad is not None and hidden.grad.dtype == torch.bfloat16
    assert weight.grad is not None and weight.grad.dtype == torch.bfloat16


def test_a_frozen_head_costs_no_gradient() -> None:
    hidden, weight, tokens = make_inputs()
    logprobs, _ = token_logprobs(hidden, weight.detach(), tokens, 1.0)
    logprobs.sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None
