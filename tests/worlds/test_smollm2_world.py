"""An honest task on the real model, from prompts to measurements."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from protocol.checks.prefill import measure
from protocol.checks.stages import CHEAP
from protocol.prompts import task_prompts
from protocol.reasons import Outcome
from protocol.rules import SamplingRules
from tests.unit.verifier.verifier_world import World
from tests.worlds.smollm2 import make_smollm2_world


@pytest.fixture(scope="module")
def small(smollm2_folder: Path) -> World:
    """Two groups of two rollouts of four tokens."""
    return make_smollm2_world(smollm2_folder, sampling=SamplingRules(max_new_tokens=4), group_size=2)


@pytest.mark.slow
def test_an_honest_task_measures_as_honest(small: World) -> None:
    case = small.case(small.rollouts(small.completions()))
    assert all(check(case).outcome == Outcome.ACCEPT for check in CHEAP)
    found = measure(case, small.model)
    assert found.margins.mean() < 1e-4
    assert found.proofs.mismatch_share < 0.01


@pytest.mark.slow
def test_a_bfloat16_engine_differs_from_a_float32_one(small: World) -> None:
    found = measure(small.case(small.rollouts(small.completions(dtype=torch.bfloat16))), small.model)
    assert found.proofs.mantissa_mean > 0.1


@pytest.mark.slow
def test_prompts_are_one_chat_turn_begun(small: World) -> None:
    tokenizer = small.environment.tokenizer
    (start, end) = (tokenizer.encode(text) for text in ("<|im_start|>", "<|im_end|>"))
    assert tokenizer.eos_ids == tuple(end)
    for prompt in task_prompts(small.rules, small.environment, small.seed()):
        tokens = prompt.tokens.tolist()
        assert tokens[:1] == start
        assert (tokens.count(*start), tokens.count(*end)) == (2, 1)
        assert "step by step. First," in tokenizer.decode(tokens)
