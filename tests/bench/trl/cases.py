"""Tokens in every region of the clip, and the options under which TRL's GRPO loss and ours say the same.

In: nothing. Out: `CASES`, `make_rows`, in float64. TRL has them as [B, T] with a mask, ours in a row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LENGTHS = (9, 1, 4, 12, 7, 3)
MAX_NEW_TOKENS = 15
NAMES = ("logprobs", "entropy", "old", "worker", "reference")
NORMALISATIONS = {"token": "dapo", "sequence": "grpo", "constant": "dr_grpo"}
"""Ours, and what TRL calls them."""
OPTIONS: dict[str, dict[str, Any]] = {
    "one-sided": {"clip": {"delta": None}},
    "two-sided": {},
    "clip-higher": {"clip": {"epsilon_high": 0.28}},
    "k3": {"kl_coefficient": 0.05},
    "importance": {"importance_cap": 1.2},
    "all of them": {"clip": {"epsilon_high": 0.3, "delta": 2.0}, "kl_coefficient": 0.1, "importance_cap": 1.5},
}
CASES = [
    {"name": f"{normalisation}, {name}", "objective": options | {"normalisation": normalisation}}
    for normalisation in NORMALISATIONS
    for name, options in OPTIONS.items()
] + [{"name": "token, entropy", "objective": {"normalisation": "token", "entropy_coefficient": 0.02}}]
"""TRL's entropy bonus is a mean over tokens whatever the normalisation is: ours says the same for "token" alone."""


def make_rows(seed: int = 0) -> tuple[dict[str, Tensor], Tensor]:
    """float64 columns [sum of T] by name, and the advantages [B]."""
    generator = torch.Generator().manual_seed(seed)
    count = sum(LENGTHS)

    def noise(scale: float, size: int = count) -> Tensor:
        return torch.randn(size, dtype=torch.float64, generator=generator) * scale

    old = noise(1.0) - 3
    columns = {
        "logprobs": old + noise(1.3),
        "entropy": noise(0.3).exp(),
        "old": old,
        "worker": old + noise(0.5),
        "reference": old + noise(0.7),
    }
    return columns, noise(1.0, len(LENGTHS))
