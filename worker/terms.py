"""The terms that tasks are worked under: rules by their hash, and the environment that they name.

In: a task's `rules_hash`, a model folder (for its tokenizer). Out: `Rules` and `Environment`, each loaded
once and checked against its hash.
"""

from __future__ import annotations

from pathlib import Path

from protocol.environments.base import Environment
from protocol.environments.registry import environment_of
from protocol.rules import Rules
from protocol.tokenizer import Tokenizer
from worker.membership import Membership


class Terms:
    """Example: `terms.environment(terms.rules(task.rules_hash), folder)`."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._rules: dict[str, Rules] = {}
        self._environments: dict[str, Environment] = {}

    def rules(self, rules_hash: str) -> Rules:
        """The rules with this hash. Raises Unreachable, Rejected or ProofpoolError."""
        if rules_hash not in self._rules:
            self._rules[rules_hash] = self._membership.coordinator.rules(rules_hash)
        return self._rules[rules_hash]

    def environment(self, rules: Rules, model_folder: Path) -> Environment:
        """The rules' environment. Raises ConfigError where the one installed here isn't the pool's."""
        key = rules.environment.environment_hash
        if key not in self._environments:
            self._environments[key] = environment_of(rules.environment, Tokenizer.load(model_folder))
        return self._environments[key]
