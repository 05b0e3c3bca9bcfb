"""What a step reports: sums over its trained tokens, and the ratios' quantiles.

In: `TokenRows` of each forward pass of a step. Out: `StepFigures`, a line of metrics.jsonl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from protocol.environments.base import NO_TARGET_LENGTH
from trainer.loss import ClipConfig, TokenRows, k3
from trainer.ranks import ALONE, Ranks
from trainer.samples import Sample, TrainingBatch

MEANS = ("high", "low", "delta", "entropy", "kl_old", "kl_worker", "kl_bounded")
MOST_LOG_RATIO = 1.0
"""Nats: a token says no more of `kl_to_worker_bounded` than one whose probability is e times another's."""
RATIO_QUANTILES = (0.01, 0.5, 0.99)


@dataclass(frozen=True)
class StepFigures:
    """What a step reports; means are over trained tokens unless said."""

    objective: float
    """Value that the step maximised, the mean over its optimizer steps."""
    ratio_clipped_share: float
    """Tokens whose gradient the clip took away: the three shares below together."""
    ratio_high_share: float
    """Â > 0 and r > 1 + ε_high."""
    ratio_low_share: float
    """Â < 0 and r < 1 − ε."""
    ratio_delta_share: float
    """Â < 0 and r > δ."""
    ratio_p01: float
    ratio_p50: float
    ratio_p99: float
    entropy: float
    kl_to_old: float
    kl_to_worker: float
    """Of the policy at the start of the step to the one that the worker sampled from, by lag and numerics. The mean
    of exp(d) − 1 − d with d = log(worker / start): one token that has become very unlikely outweighs all others."""
    kl_to_worker_bounded: float
    """The same with d between −1 and 1: how far most tokens are, whatever a single one does."""
    worker_ratio_p01: float
    """Quantiles of start / worker, which `importance_cap` bounds."""
    worker_ratio_p50: float
    worker_ratio_p99: float
    kl_to_reference: float | None
    """None where the recipe keeps no reference."""
    grad_norm: float
    """Mean over optimizer steps, before it is cut."""
    mean_task_reward: float
    """Over rollouts."""
    mean_length_penalty: float
    """Over rollouts."""
    length_error_p50: dict[str, float]
    """Of the rollouts with each target length, its number as text: the median of |target − length|, in tokens."""
    length_error_p90: dict[str, float]
    mean_policy_lag: float
    """Over rollouts, in versions."""
    min_policy_lag: int
    max_policy_lag: int
    policy_lag_counts: dict[str, int]
    """Rollouts by their lag, its number as text; JSON has no other keys."""
    num_groups: int
    num_rollouts: int
    num_tokens: int
    """Trained ones."""


@dataclass
class Tally:
    """Adds up a step. Example: `tally.add(rows, value=…)` a pass, `tally.close(norm)` an optimizer step, `figures`."""

    clip: ClipConfig
    has_reference: bool = False
    objective: float = 0.0
    grad_norms: list[float] = field(default_factory=list)
    _rows: list[dict[str, Tensor]] = field(default_factory=list)

    def add(self, rows: TokenRows, value: float) -> None:
        """One forward pass, and its part of the optimizer step's value."""
        self.objective += value
        with torch.no_grad():
            ratio = torch.exp(rows.logprobs - rows.old)
            gains = rows.advantages > 0
            loses = rows.advantages < 0
            past_delta = loses & (ratio > self.clip.delta) if self.clip.delta is not None else torch.zeros_like(gains)
            columns = {
                "ratio": ratio,
                "high": gains & (ratio > self.clip.most),
                "low": loses & (ratio < self.clip.least),
                "delta": past_delta,
                "entropy": rows.entropy.detach(),
                "kl_old": k3(rows.logprobs, rows.old),
                "kl_worker": k3(rows.old, rows.worker),
                "kl_bounded": k3(rows.old, rows.old + (rows.worker - rows.old).clamp(-MOST_LOG_RATIO, MOST_LOG_RATIO)),
                "worker_ratio": torch.exp(rows.old - rows.worker),
            } | ({} if rows.reference is None else {"kl_reference": k3(rows.logprobs, rows.reference)})
            self._rows.append({name: column.cpu() for name, column in columns.items()})

    def close(self, grad_norm: float) -> None:
        """The end of an optimizer step."""
        self.grad_norms.append(grad_norm)

    def figures(self, batch: TrainingBatch, policy_version: int, ranks: Ranks = ALONE) -> StepFigures:
        """Of all that was added on all `ranks`, for a step of `batch` that starts from `policy_version`."""
        samples = batch.samples
        num_tokens = sum(sample.num_outputs for sample in samples)
        names = [*MEANS, *(["kl_reference"] if self.has_reference else [])]
        sums = ranks.sum(torch.stack([self._column(name).sum() for name in names]))
        mean = dict(zip(names, (sums / num_tokens).tolist(), strict=True))
        objective = float(ranks.sum(torch.tensor(self.objective, dtype=torch.float64)))
        lags = [policy_version - sample.policy_version for sample in samples]
        low, middle, high = quantiles(ranks.gather(self._column("ratio")))
        worker_low, worker_middle, worker_high = quantiles(ranks.gather(self._column("worker_ratio")))
        return StepFigures(
            objective=objective / len(self.grad_norms),
            ratio_clipped_share=mean["high"] + mean["low"] + mean["delta"],
            ratio_high_share=mean["high"],
            ratio_low_share=mean["low"],
            ratio_delta_share=mean["delta"],
            ratio_p01=low,
            ratio_p50=middle,
            ratio_p99=high,
            entropy=mean["entropy"],
            kl_to_old=mean["kl_old"],
            kl_to_worker=mean["kl_worker"],
            kl_to_worker_bounded=mean["kl_bounded"],
            worker_ratio_p01=worker_low,
            worker_ratio_p50=worker_middle,
            worker_ratio_p99=worker_high,
            kl_to_reference=mean.get("kl_reference"),
            grad_norm=sum(self.grad_norms) / len(self.grad_norms),
            mean_task_reward=_mean([sample.task_reward for sample in samples]),
            mean_length_penalty=_mean([sample.length_penalty for sample in samples]),
            length_error_p50=length_errors(samples, 0.5),
            length_error_p90=length_errors(samples, 0.9),
            mean_policy_lag=_mean(lags),
            min_policy_lag=min(lags),
            max_policy_lag=max(lags),
            policy_lag_counts={str(lag): count for lag, count in sorted(Counter(lags).items())},
            num_groups=len(samples) // batch.group_size,
            num_rollouts=len(samples),
            num_tokens=num_tokens,
        )

    def _column(self, name: str) -> Tensor:
        """float64 [N]: this rank's."""
        return torch.cat([torch.empty(0), *(rows[name] for rows in self._rows)]).double()


def length_errors(samples: Sequence[Sample], quantile: float) -> dict[str, float]:
    """How far lengths are from what prompts asked for: a quantile of |target − length| (tokens) for each target."""
    errors: dict[int, list[float]] = {}
    for sample in samples:
        if sample.target_length != NO_TARGET_LENGTH:
            errors.setdefault(sample.target_length, []).append(abs(sample.target_length - sample.num_outputs))
    return {str(target): float(np.quantile(errors[target], quantile)) for target in sorted(errors)}


def quantiles(values: Tensor) -> tuple[float, ...]:
    """The values at `RATIO_QUANTILES`, nearest rank. values: float [N], N ≥ 1. `torch.quantile` has a limit of 2^24."""
    ordered = values.sort().values
    return tuple(float(ordered[round(share * (len(ordered) - 1))]) for share in RATIO_QUANTILES)


def _mean(values: list[float] | list[int]) -> float:
    return sum(values) / len(values)
