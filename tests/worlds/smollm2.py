"""A pool on SmolLM2-135M-Instruct: sums, explained at length, so that completions fill their 64 tokens.

In: the model's folder (`tests/models/smollm2.py`). Out: a `World` like the tiny model's, two groups of 8 rollouts
unless said otherwise, sampled at temperature 1 from the whole vocabulary of 49,152. Tests take the fixture
`smollm2_world`. The limits are the tiny model's: a test that judges by them sets its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from protocol.environments.base import Environment
from protocol.environments.registry import load_environment
from protocol.forward import CausalLM
from protocol.rules import SamplingRules
from protocol.tokenizer import Tokenizer
from tests.unit.verifier.verifier_world import World, make_rules

MAX_NEW_TOKENS = 64
ENVIRONMENT_CONFIG: dict[str, Any] = {
    "dataset": "chain_sum",
    "parameters": {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 2, "allow_negation": False},
    "prompt_template": (
        "<|im_start|>user\n{question} ?\nExplain at length how you work it out, step by step.<|im_end|>\n"
        "<|im_start|>assistant\nLet's work it out step by step. First,"
    ),
    "answer_marker": "=",
}
"""The chat template rendered, with the answer begun: asked plainly, the model often says a word and stops."""


def smollm2_environment(folder: Path) -> Environment:
    return load_environment("reasoning_gym", ENVIRONMENT_CONFIG, Tokenizer.load(folder))


def make_smollm2_world(folder: Path, dtype: torch.dtype = torch.float32, **rules: Any) -> World:
    """`dtype` is what engine and judge compute in; `rules` are changes to `Rules`.

    Example: `make_smollm2_world(folder, group_size=8, groups_per_task=8)`.
    """
    environment = smollm2_environment(folder)
    small = {"sampling": SamplingRules(max_new_tokens=MAX_NEW_TOKENS), "groups_per_task": 2}
    model = CausalLM.load(folder, dtype).eval()
    return World(make_rules(environment, **{**small, **rules}), environment, folder, model, dtype)
