"""The prompts of a task: the same for everybody, other ones for another seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from protocol.environments.base import NO_TARGET_LENGTH
from protocol.prompts import Prompt, task_prompts
from protocol.randomness import SeedStream
from protocol.rules import Rules

LIMIT = {"reject": 1.0, "slash": 2.0}
THRESHOLDS = {
    "toploc_exp_mismatch_share": LIMIT,
    "toploc_mantissa_mean": LIMIT,
    "sampling_margin_mean": LIMIT,
    "sampling_margin_max": LIMIT,
    "sampling_flips": {"rate": 0.01},
    "logprob_error_mean": LIMIT,
}


@dataclass(frozen=True)
class Counting:
    """A problem of the environment below."""

    index: int
    problem_id: str
    task_type: str = "counting/up"


class CountingEnvironment:
    """Problem i asks with the tokens (i, target length)."""

    num_asked = 1000

    def asked(self, index: int) -> Counting:
        return Counting(index, f"counting:{index}")

    def draw(self, stream: SeedStream) -> Counting:
        return self.asked(stream.below(self.num_asked))

    def prompt(self, problem: Counting, target_length: int) -> list[int]:
        return [problem.index, target_length]


def make_rules(**changes: Any) -> Rules:
    environment = {"name": "counting", "environment_hash": "0x" + "00" * 32}
    return Rules.model_validate({"environment": environment, "thresholds": THRESHOLDS, "groups_per_task": 4, **changes})


def prompts_of(seed: bytes, **changes: Any) -> list[Prompt]:
    return task_prompts(make_rules(**changes), CountingEnvironment(), seed)  # type: ignore[arg-type]


def test_one_prompt_a_group_from_the_groups_own_stream() -> None:
    prompts = prompts_of(bytes(32))
    indexes = [SeedStream(bytes(32), f"group/{group}").below(1000) for group in range(4)]
    assert [prompt.problem_id for prompt in prompts] == [f"counting:{index}" for index in indexes]
    assert [prompt.tokens.tolist() for prompt in prompts] == [[index, NO_TARGET_LENGTH] for index in indexes]
    assert {prompt.task_type for prompt in prompts} == {"counting/up"}
    assert all(prompt.tokens.dtype == np.int32 for prompt in prompts)


def test_target_lengths_are_drawn_after_the_problem() -> None:
    targets = (100, 200, 300)
    prompts = prompts_of(bytes(32), lengths={"targets": targets, "penalty_per_token": 0.0003})
    for group, prompt in enumerate(prompts):
        stream = SeedStream(bytes(32), f"group/{group}")
        assert prompt.problem_id == f"counting:{stream.below(1000)}"
        assert prompt.target_length == targets[stream.below(3)]
        assert prompt.tokens[1] == prompt.target_length


def test_another_seed_asks_something_else() -> None:
    first, second = (prompts_of(seed) for seed in (bytes(32), b"\1" * 32))
    assert [p.problem_id for p in first] == [p.problem_id for p in prompts_of(bytes(32))]
    assert [p.problem_id for p in first] != [p.problem_id for p in second]


def test_more_groups_keep_the_first_ones() -> None:
    assert [p.problem_id for p in prompts_of(bytes(32), groups_per_task=6)][:4] == [
        p.problem_id for p in prompts_of(bytes(32))
    ]


@pytest.mark.parametrize("seed", [b"", b"short"])
def test_any_bytes_are_a_seed(seed: bytes) -> None:
    assert len(prompts_of(seed)) == 4
