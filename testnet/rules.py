"""The rules of a testnet's pool.

In: the base model's folder (its tokenizer is part of the environment's hash). Out: `Rules`, and the file
that the coordinator serves them from.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from protocol.canonical import canonical_hash
from protocol.files import write_atomically
from protocol.rules import EnvironmentRules, Rules, SamplingRules
from protocol.tokenizer import TOKENIZER_FILE, Tokenizer
from protocol.weights import CONFIG_FILE, WEIGHTS_FILE
from testnet.task import ENVIRONMENT_CONFIG, ENVIRONMENT_NAME, MAX_NEW_TOKENS, testnet_environment
from verifier.thresholds import default_thresholds

GROUP_SIZE = 8
GROUPS_PER_TASK = 8


def testnet_rules(base_model: Path) -> Rules:
    environment = testnet_environment(Tokenizer.load(base_model))
    return Rules(
        environment=EnvironmentRules(
            name=ENVIRONMENT_NAME, config=ENVIRONMENT_CONFIG, environment_hash=environment.environment_hash
        ),
        sampling=SamplingRules(max_new_tokens=MAX_NEW_TOKENS),
        thresholds=default_thresholds(),
        group_size=GROUP_SIZE,
        groups_per_task=GROUPS_PER_TASK,
    )


def write_rules(rules: Rules, file: Path) -> Path:
    write_atomically(file, rules.model_dump_json(indent=2).encode() + b"\n")
    return file


def model_hash(base_model: Path) -> str:
    """What the pool's record names its base model by: the hash over the SHA-256 of each of its files."""
    names = (CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE)
    return canonical_hash({name: hashlib.sha256((base_model / name).read_bytes()).hexdigest() for name in names})
