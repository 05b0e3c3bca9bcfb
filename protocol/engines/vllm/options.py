"""What can be chosen about vLLM. In: a configuration. Out: a frozen value that the engine is made with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ModelRunner = Literal["v1", "v2"]
"""vLLM has two of them; on a processor only the first one runs."""


@dataclass(frozen=True)
class VllmOptions:
    """None leaves it to vLLM, but for `cache_gib` on a processor, which is 1 then."""

    cache_gib: float | None = None
    """Memory for keys and values; where it is full, rollouts wait or are computed again."""
    max_length: int | None = None
    """Most tokens of prompt and completion together; the model's own limit without it."""
    max_step_tokens: int | None = None
    """Most tokens that one step computes: longer prompts take several."""
    model_runner: ModelRunner = "v1"
