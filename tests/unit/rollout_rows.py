"""Rows of no meaning, for whoever only looks at the form of a rollout file."""

from __future__ import annotations

import numpy as np

from protocol.rollouts import FileHeader, Rollout
from protocol.rules import SamplingRules

HEADER = FileHeader(task_id="0x" + "11" * 32, group_size=2, sampling=SamplingRules())


def make_rollout(number: int = 0, num_tokens: int = 5) -> Rollout:
    rng = np.random.default_rng(number)
    return Rollout(
        input_tokens=rng.integers(0, 50, 7).astype(np.int32),
        output_tokens=rng.integers(0, 50, num_tokens).astype(np.int32),
        output_logprobs=-rng.random(num_tokens).astype(np.float32),
        task_reward=float(number % 2),
        proofs=rng.bytes(258),
        step=3,
        problem_id=f"p{number}",
        task_type="sums",
        target_length=-1,
        finish_reason="stop",
    )
