"""The testnet's task: `chain_sum` of reasoning_gym, answered by running sums after which `#` marks the answer.

In: nothing. Out: the environment's name and configuration as they go into the pool's rules.
"""

from __future__ import annotations

from typing import Any

from protocol.environments.base import Environment
from protocol.environments.registry import load_environment
from protocol.tokenizer import Tokenizer

ENVIRONMENT_NAME = "reasoning_gym"
ENVIRONMENT_CONFIG: dict[str, Any] = {
    "dataset": "chain_sum",
    "parameters": {"min_terms": 2, "max_terms": 5, "min_digits": 1, "max_digits": 2, "allow_negation": False},
    "answer_marker": "#",
    "reward": "pass",
}
MAX_NEW_TOKENS = 64
NUM_HELD_BACK = 1_024


def testnet_environment(tokenizer: Tokenizer) -> Environment:
    return load_environment(ENVIRONMENT_NAME, ENVIRONMENT_CONFIG, tokenizer)
