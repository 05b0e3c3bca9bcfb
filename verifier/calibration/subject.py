"""What is calibrated: a model folder, and the rules under which it answers.

In: a model folder, and a JSON document with a pool's rules, or with as much of them as is decided. Out: `Subject`.
What the document leaves out is filled in: thresholds (they are what a calibration is to give), the environment's hash,
and, where there is no document, short sums as questions.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from protocol.canonical import hex0x
from protocol.checks.case import Terms
from protocol.environments.base import Environment
from protocol.environments.registry import environment_of
from protocol.errors import UsageError
from protocol.rules import Rules
from protocol.rules_document import completed_rules, partial_document
from protocol.tokenizer import TOKENIZER_FILE, Tokenizer
from protocol.weights import CONFIG_FILE, ModelConfig
from protocol.weights_parts import weights_files
from verifier.thresholds import default_thresholds

POLICY_VERSION = 0


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and the rules it works under. `folder` has config.json, model.safetensors and tokenizer.json."""

    folder: Path
    rules: Rules
    environment: Environment
    model_config: ModelConfig

    @property
    def num_rollouts(self) -> int:
        """Rollouts of one submission."""
        return self.rules.group_size * self.rules.groups_per_task

    def of_size(self, num_submissions: int) -> Subject:
        """The same with tasks of so many submissions."""
        groups_per_task = self.rules.groups_per_task * num_submissions
        return replace(self, rules=self.rules.model_copy(update={"groups_per_task": groups_per_task}))

    def terms(self, seed: bytes) -> Terms:
        """What a submission of the task with this seed is judged by."""
        return Terms(
            rules=self.rules,
            environment=self.environment,
            model_config=self.model_config,
            seed=seed,
            policy_version=POLICY_VERSION,
            max_units=self.rules.max_units,
        )

    def hashes(self) -> dict[str, str]:
        """SHA-256 of the files that decide the numbers, 0x-hex."""
        return {
            name: _file_hash(self.folder / name) for name in (CONFIG_FILE, *weights_files(self.folder), TOKENIZER_FILE)
        }


def load_subject(folder: Path, rules_file: Path | None = None) -> Subject:
    """Raises UsageError or ConfigError where folder or document can't be used."""
    if not folder.is_dir():
        raise UsageError("there is no such model folder", f"{folder}", "name a folder in Hugging Face format")
    config, tokenizer = ModelConfig.load(folder), Tokenizer.load(folder)
    document = partial_document(rules_file) if rules_file else {}
    rules = completed_rules({"thresholds": default_thresholds(), **document}, tokenizer)
    return Subject(folder, rules, environment_of(rules.environment, tokenizer), config)


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hex0x(hashlib.file_digest(file, "sha256").digest())
