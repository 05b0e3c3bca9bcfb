"""The objective: GRPO with a clip on both sides, and the options that other papers add to it.

    value_t = c_t · min(min(r_t, δ)·Â, clip(r_t, 1 − ε, 1 + ε_high)·Â) − β·k3_t + η·H_t
    loss    = − Σ_t share_t · value_t

In: what each trained token has under the current policy, the policy before the step, the reference and the worker
(`TokenRows`). Out: values to be maximised, a token each, and the share of each token in a step. Sources:

    two-sided clip (δ)               INTELLECT-2, arXiv:2505.07291, section 3.4
    ε_high, normalisation "token"    DAPO, arXiv:2503.14476, equation 8
    normalisation "sequence"         GRPO, arXiv:2402.03300, equation 3
    normalisation "constant"         Dr. GRPO, arXiv:2503.20783, section 3
    β·k3                             GRPO, equation 4; the estimator k3 of J. Schulman, "Approximating KL Divergence"
    c_t, truncated                   truncated importance sampling: IMPALA, arXiv:1802.01561, section 4.1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

Normalisation = Literal["token", "sequence", "constant"]


class ClipConfig(BaseModel):
    """Where the ratio stops counting."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    epsilon: float = Field(default=0.2, gt=0, lt=1)
    """Ratios outside 1 − ε to 1 + ε gain nothing."""
    epsilon_high: float | None = Field(default=None, gt=0)
    """Another upper edge, 1 + ε_high (DAPO's clip-higher); unless given it is ε."""
    delta: float | None = Field(default=4.0, gt=1)
    """The most that a ratio counts where the advantage is negative; None is PPO's clip, one-sided."""

    @property
    def most(self) -> float:
        """The ratio above which a token with a positive advantage gives nothing more."""
        return 1 + (self.epsilon if self.epsilon_high is None else self.epsilon_high)

    @property
    def least(self) -> float:
        """The ratio below which a token with a negative advantage gives nothing more."""
        return 1 - self.epsilon

    @model_validator(mode="after")
    def _delta_is_outermost(self) -> ClipConfig:
        if self.delta is not None and self.delta < self.most:
            raise ValueError(f"delta {self.delta} lies below 1 + epsilon_high = {self.most}: it would clip first")
        return self


class ObjectiveConfig(BaseModel):
    """What is maximised; each option is named in the module's sources."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    clip: ClipConfig = ClipConfig()
    normalisation: Normalisation = "token"
    kl_coefficient: float = Field(default=0.0, ge=0)
    """β. Above 0, the base model is kept as the reference, and its log-probs cost one more forward pass. Of adapters it
    is the model that they are added to, which is there already."""
    entropy_coefficient: float = Field(default=0.0, ge=0)
    """η."""
    importance_cap: float | None = Field(default=None, gt=0)
    """Bound of c = (policy before the step) / (policy that the worker sampled from); without it c is 1."""


@dataclass(frozen=True)
class TokenRows:
    """The trained tokens of a forward pass, float32 [N] each; only `logprobs` and `entropy` carry a gradient.

    `logprobs` and `entropy` (nats) are the current policy's, `old` its log-probs at the start of the step,
    `reference` the frozen model's (None where β is 0), `worker` what the worker claims and a verifier has checked.
    """

    logprobs: Tensor
    entropy: Tensor
    old: Tensor
    worker: Tensor
    advantages: Tensor
    reference: Tensor | None = None


def token_values(rows: TokenRows, config: ObjectiveConfig) -> Tensor:
    """Value of each token, float [N], to be maximised.

    Where Â < 0 and r > δ, where Â > 0 and r > 1 + ε_high, and where Â < 0 and r < 1 − ε, the clipped part is bounded
    and its gradient exactly 0.
    """
    values = clipped_values(rows.logprobs, rows.old, rows.advantages, config.clip)
    if config.importance_cap is not None:
        values = values * importance(rows.old, rows.worker, config.importance_cap)
    if rows.reference is not None and config.kl_coefficient:
        values = values - config.kl_coefficient * k3(rows.logprobs, rows.reference)
    if config.entropy_coefficient:
        values = values + config.entropy_coefficient * rows.entropy
    return values


def clipped_values(logprobs: Tensor, old: Tensor, advantages: Tensor, clip: ClipConfig) -> Tensor:
    """min(min(r, δ)·Â, clip(r, 1 − ε, 1 + ε_high)·Â), float [N], with r = exp(logprobs − old)."""
    ratio = torch.exp(logprobs - old)
    bounded = ratio if clip.delta is None else ratio.clamp(max=clip.delta)
    return torch.minimum(bounded * advantages, ratio.clamp(clip.least, clip.most) * advantages)


def importance(old: Tensor, worker: Tensor, cap: float) -> Tensor:
    """min(π_old / π_worker, cap), float [N], without gradient: how much a token of an older policy still says."""
    return torch.exp(old - worker).clamp(max=cap).detach()


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """The estimate π_ref/π − log(π_ref/π) − 1 ≥ 0 of KL(π ‖ π_ref), float [N]; its gradient flows."""
    difference = reference - logprobs
    return torch.expm1(difference) - difference


def token_shares(lengths: Sequence[int], normalisation: Normalisation, max_tokens: int) -> list[float]:
    """Share of each token of completions of these lengths (≥ 1) in the loss of an optimizer step.

    "token": 1 / all tokens. "sequence": 1 / (completions · the completion's tokens). "constant": 1 / (completions ·
    `max_tokens`), so that length changes nothing. The shares depend on the whole step alone, never on how it is packed.
    """
    if normalisation == "token":
        return [1 / sum(lengths)] * len(lengths)
    if normalisation == "sequence":
        return [1 / (len(lengths) * length) for length in lengths]
    return [1 / (len(lengths) * max_tokens)] * len(lengths)
