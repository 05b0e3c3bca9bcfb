"""The rules of a testnet's pool: short sums for the testnet's own model, or whatever a document says.

In: the base model's folder (its tokenizer is part of the environment's hash), and as much of the rules as is decided.
Out: `Rules`, and the file that the coordinator serves them from.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from protocol.canonical import canonical_hash
from protocol.errors import UsageError
from protocol.files import write_atomically
from protocol.rules import Rules, Thresholds
from protocol.rules_document import completed_rules, partial_document
from protocol.tokenizer import TOKENIZER_FILE, Tokenizer
from protocol.weights import CONFIG_FILE
from protocol.weights_parts import weights_files
from testnet.task import ENVIRONMENT_CONFIG, ENVIRONMENT_NAME, MAX_NEW_TOKENS
from verifier.thresholds import names, read_thresholds, thresholds_for, thresholds_of

GROUP_SIZE = 8
GROUPS_PER_TASK = 8
DEFAULTS: dict[str, Any] = {
    "environment": {"name": ENVIRONMENT_NAME, "config": ENVIRONMENT_CONFIG},
    "sampling": {"max_new_tokens": MAX_NEW_TOKENS},
    "group_size": GROUP_SIZE,
    "groups_per_task": GROUPS_PER_TASK,
}


def testnet_rules(base_model: Path, rules_file: Path | None = None, thresholds: str | None = None) -> Rules:
    """The document with the testnet's own rules where it says nothing, as `verifier calibrate --rules` takes it.

    `thresholds` names limits, or a file of them; without it they are the document's, or those that were measured on
    the model. Raises UsageError or ConfigError where model, document and limits don't make rules.
    """
    document = partial_document(rules_file) if rules_file else {}
    limits = _limits(document, base_model, thresholds)
    return completed_rules({**DEFAULTS, **document, "thresholds": limits}, Tokenizer.load(base_model))


def _limits(document: dict[str, Any], base_model: Path, thresholds: str | None) -> Thresholds | Any:
    if thresholds is None:
        return document["thresholds"] if "thresholds" in document else thresholds_for(base_model)
    if "thresholds" in document:
        raise UsageError("there are two sets of limits", f"--thresholds {thresholds}, and the rules have thresholds")
    return thresholds_of(thresholds) if thresholds in names() else read_thresholds(Path(thresholds))


def write_rules(rules: Rules, file: Path) -> Path:
    write_atomically(file, rules.model_dump_json(indent=2).encode() + b"\n")
    return file


def model_hash(base_model: Path) -> str:
    """What the pool's record names its base model by: the hash over the SHA-256 of each of its files."""
    names = (CONFIG_FILE, TOKENIZER_FILE, *weights_files(base_model))
    return canonical_hash({name: hashlib.sha256((base_model / name).read_bytes()).hexdigest() for name in names})
