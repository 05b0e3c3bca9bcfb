"""Observations to measure limits on, without a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from verifier.calibration.observe import TIE_NATS, Observation


@pytest.fixture
def make_observation() -> Callable[..., Observation]:
    """One rollout of 32 tokens without any deviation; keywords change it."""

    def make(**changes: Any) -> Observation:
        none = (0,) * len(TIE_NATS)
        fields: dict[str, Any] = dict.fromkeys(Observation.__dataclass_fields__, 0.0)
        counts = {"num_rollouts": 1, "num_prompt_tokens": 9, "num_tokens": 32, "num_chunks": 1}
        fields |= (
            counts
            | {"num_degenerate": 0, "num_flips": 0, "num_flips_up": 0, "num_flips_down": 0}
            | {"flip_margins": (), "num_ties": none, "num_tie_flips": none}
        )
        return Observation(**(fields | changes))

    return make
