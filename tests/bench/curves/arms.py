"""What is compared with what: experiments, each of arms that differ in one thing.

In: nothing. Out: `EXPERIMENTS`. Sources: INTELLECT-2 (arXiv:2505.07291), figure 7 for lag, section 3.4 for the clip,
section 3.3 for filters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SMALL_STEPS: dict[str, Any] = {
    "learning_rate": 1e-4,
    "weight_decay": 0.0,
    "warmup_steps": 0,
    "grad_norm_clip": 1.0,
    "optimizer_steps": 2,
    "max_tokens": 4096,
}
"""The testnet's recipe with half the optimizer steps: a version differs little from the next."""
LARGE_STEPS = SMALL_STEPS | {"learning_rate": 2e-4}
HARSH = SMALL_STEPS | {"optimizer_steps": 16, "grad_norm_clip": 1e9}
"""An optimizer step a group, and no bound on the gradient's norm."""
SIDES: tuple[tuple[str, float | None], ...] = (("one-sided", None), ("two-sided", 4.0))
"""The clip's name, and its δ."""


@dataclass(frozen=True)
class Arm:
    """One way to train. Each seed of it is a rehearsal (`trainer/rehearsal.py`) with these settings."""

    name: str
    lag: int = 2
    num_steps: int = 32
    groups_per_step: int = 8
    evaluate_every: int = 4
    recipe: dict[str, Any] = field(default_factory=lambda: dict(SMALL_STEPS))
    is_filtered: bool = False
    """Tasks draw only problems that the offline filter keeps."""
    drop_flat_groups: bool = True
    """The online filter."""


def _large(lag: int) -> Arm:
    name = f"large-steps-lag-{lag}"
    return Arm(name, lag, num_steps=24, groups_per_step=16, evaluate_every=2, recipe=dict(LARGE_STEPS))


def _harsh(side: str, delta: float | None, rate: str, second_beta: float, num_steps: int) -> Arm:
    recipe = HARSH | {
        "learning_rate": float(rate),
        "betas": (0.9, second_beta),
        "objective": {"clip": {"delta": delta}},
    }
    name = f"{side}-{rate}-beta-{second_beta}"
    return Arm(name, lag=4, num_steps=num_steps, groups_per_step=16, evaluate_every=2, recipe=recipe)


LAGS = tuple(Arm(f"lag-{lag}", lag) for lag in (0, 1, 2, 4))
LARGE = tuple(_large(lag) for lag in (0, 4))
BOTH_FILTERS = (Arm("offline-filter", is_filtered=True),)
"""Beside `lag-2`, which has the online filter alone."""
NO_ONLINE_FILTER = (
    Arm("no-filter", drop_flat_groups=False),
    Arm("offline-filter-alone", is_filtered=True, drop_flat_groups=False),
)
CLIPS = tuple(_harsh(side, delta, "1.5e-4", 0.999, 16) for side, delta in SIDES)
CLIPS_OF_THE_PAPERS_BETAS = tuple(_harsh(side, delta, "3e-4", 0.99, 12) for side, delta in SIDES)

EXPERIMENTS: dict[str, tuple[Arm, ...]] = {
    "lag": LAGS,
    "clip": CLIPS,
    "filter": BOTH_FILTERS + NO_ONLINE_FILTER,
    "clip-other-betas": CLIPS_OF_THE_PAPERS_BETAS,
    "large-steps": LARGE,
}
ARMS = {arm.name: arm for arms in EXPERIMENTS.values() for arm in arms}
