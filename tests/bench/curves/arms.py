"""What is compared with what: experiments, each of arms that differ in one thing.

In: nothing. Out: `EXPERIMENTS`. Sources: INTELLECT-2 (arXiv:2505.07291), figure 7 for lag, section 3.4 for the clip,
section 3.3 for filters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RECIPE: dict[str, Any] = {
    "learning_rate": 1e-4,
    "weight_decay": 0.0,
    "warmup_steps": 0,
    "grad_norm_clip": 1.0,
    "optimizer_steps": 2,
    "max_tokens": 4096,
}
"""The testnet's, with half the optimizer steps: a version differs little from the next."""
HARSH = RECIPE | {
    "betas": (0.9, 0.999),
    "optimizer_steps": 16,
    "grad_norm_clip": 1e9,
}
"""An optimizer step a group, AdamW's usual β₂ (the paper's is 0.99), and no bound on the gradient's norm."""


@dataclass(frozen=True)
class Arm:
    """One way to train. Each seed of it is a rehearsal (`trainer/rehearsal.py`) with these settings."""

    name: str
    lag: int = 2
    num_steps: int = 32
    groups_per_step: int = 8
    evaluate_every: int = 4
    recipe: dict[str, Any] = field(default_factory=lambda: dict(RECIPE))
    is_filtered: bool = False
    """Tasks draw only problems that the offline filter keeps."""


def _harsh(side: str, delta: float | None, rate: str) -> Arm:
    recipe = HARSH | {"learning_rate": float(rate), "objective": {"clip": {"delta": delta}}}
    return Arm(f"{side}-{rate}", lag=4, num_steps=16, groups_per_step=16, evaluate_every=2, recipe=recipe)


LAGS = tuple(Arm(f"lag-{lag}", lag) for lag in (0, 1, 2, 4))
CLIPS = tuple(
    _harsh(side, delta, rate)
    for rate in ("1.5e-4", "2e-4")
    for side, delta in (("one-sided", None), ("two-sided", 4.0))
)
FILTERS = (Arm("offline-filter", is_filtered=True),)
"""Beside `lag-2`, which draws all problems; groups without variance are dropped in both."""

EXPERIMENTS: dict[str, tuple[Arm, ...]] = {"lag": LAGS, "clip": CLIPS, "filter": FILTERS}
ARMS = {arm.name: arm for arms in EXPERIMENTS.values() for arm in arms}
