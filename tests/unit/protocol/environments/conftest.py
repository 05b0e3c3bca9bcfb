"""A small tokenizer and the chain_sum environment over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocol.environments.reasoning_gym import ReasoningGym, load
from protocol.tokenizer import Tokenizer
from testnet.base_model.vocabulary import EOS_ID, PAD_ID, make_tokenizer

PARAMETERS = {"min_terms": 2, "max_terms": 5, "min_digits": 1, "max_digits": 2}


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer(make_tokenizer(), [EOS_ID], None, PAD_ID)


@pytest.fixture
def make_environment(tokenizer: Tokenizer) -> Callable[..., ReasoningGym]:
    """chain_sum with the given changes to its configuration."""

    def make(**changes: Any) -> ReasoningGym:
        config = {"dataset": "chain_sum", "parameters": PARAMETERS, "answer_marker": "#", "num_problems": 500}
        return load({**config, **changes}, tokenizer)

    return make
