"""The objective: GRPO with a clip on both sides.

In: log-probs of the chosen tokens under the current and the old policy, and an advantage a token.
Out: the value of the objective a token, to be maximised. Source: INTELLECT-2 (arXiv:2505.07291),
section 3.4: min(min(r, delta) * A, clip(r, 1 - eps, 1 + eps) * A).
"""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor


class ClipConfig(BaseModel):
    """Epsilon of GRPO's clip, and delta, which bounds the ratio where the advantage is negative."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    epsilon: float = Field(default=0.2, gt=0, lt=1)
    delta: float = Field(default=4.0, gt=1)


def objective(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip: ClipConfig) -> Tensor:
    """Value a token, float [N], for logprobs, old_logprobs and advantages float [N].

    Where A < 0 and r > delta, where A > 0 and r > 1 + eps, and where A < 0 and r < 1 - eps, the value
    is bounded and its gradient exactly 0.
    """
    ratio = torch.exp(logprobs - old_logprobs)
    bounded = ratio.clamp(max=clip.delta) * advantages
    clipped = ratio.clamp(1 - clip.epsilon, 1 + clip.epsilon) * advantages
    return torch.minimum(bounded, clipped)


def group_advantages(rewards: Tensor) -> Tensor:
    """(R - mean) / (std + 1e-6) within each group, std with ddof 1: float [groups, size] to the same shape."""
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    return centred / (rewards.std(dim=1, keepdim=True, correction=1) + 1e-6)


def token_logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-prob of each token under softmax(logits / T), and the entropy of that distribution (nats).

    logits float [N, V], tokens int64 [N]; both results are float [N].
    """
    log_softmax = torch.log_softmax(logits / temperature, dim=-1)
    entropy = -(log_softmax.exp() * log_softmax).sum(-1)
    return log_softmax.gather(1, tokens[:, None])[:, 0], entropy
