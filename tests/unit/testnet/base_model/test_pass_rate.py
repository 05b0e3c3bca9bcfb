"""The pass rate: of a model that can't answer, of one that always does, and reproducible."""

from __future__ import annotations

import pytest
import torch

from protocol.environments.base import Environment
from protocol.forward import CausalLM
from protocol.tokenizer import Tokenizer
from testnet.base_model.make import model_config, new_model
from testnet.base_model.pass_rate import pass_rate, sample
from testnet.base_model.vocabulary import EOS_ID, PAD_ID, make_tokenizer
from testnet.task import testnet_environment as load_task


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(make_tokenizer(), [EOS_ID], None, PAD_ID)


@pytest.fixture(scope="module")
def environment(tokenizer: Tokenizer) -> Environment:
    return load_task(tokenizer)


@pytest.fixture(scope="module")
def untrained() -> CausalLM:
    return new_model(model_config(30), seed=0, std=0.06)


def test_an_untrained_model_passes_nothing(untrained: CausalLM, environment: Environment) -> None:
    problems = [environment.problem(i) for i in range(8)]
    assert pass_rate(untrained, environment, problems, max_new_tokens=4) == 0.0


def test_a_completion_ends_with_eos_or_at_the_limit(untrained: CausalLM) -> None:
    generator = torch.Generator().manual_seed(0)
    completions = sample(untrained, [[3, 4], [5], [6, 7, 8]] * 8, [EOS_ID], 12, generator)
    for completion in completions:
        assert EOS_ID not in completion[:-1]
        assert completion[-1] == EOS_ID or len(completion) == 12
    assert len({len(c) for c in completions}) > 1


def test_the_same_seed_samples_the_same(untrained: CausalLM) -> None:
    def completions(seed: int) -> list[list[int]]:
        return sample(untrained, [[3, 4], [5]], [EOS_ID], 12, torch.Generator().manual_seed(seed))

    assert completions(1) == completions(1) != completions(2)
