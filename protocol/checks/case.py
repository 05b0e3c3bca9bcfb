"""A rollout file under judgement: its rows, and what the task's seed and the pool's rules say of them.

In: file bytes, the rules, and what the lease fixes (seed, policy version, units). Out: `Case`, frozen; every check
takes a `Case` and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from protocol.canonical import hex0x
from protocol.environments.base import Environment
from protocol.prompts import Prompt, task_prompts
from protocol.rollouts import FileHeader, Rollout, content_hash, read_rollouts
from protocol.rules import Rules

if TYPE_CHECKING:
    from protocol.checks.measurements import Measurements
    from protocol.weights import ModelConfig

MAX_PROMPT_TOKENS = 8192
"""How long a row's prompt may be before the file isn't read on; the right length is `checks/prompts.py`'s business."""


@dataclass(frozen=True, eq=False)
class Terms:
    """What a file is judged by, known before it is read. `seed` is the task's; `max_units` what its lease pays for."""

    rules: Rules
    environment: Environment
    model_config: ModelConfig
    seed: bytes
    policy_version: int
    max_units: int

    @cached_property
    def prompts(self) -> list[Prompt]:
        """What the seed asks, one prompt a group."""
        return task_prompts(self.rules, self.environment, self.seed)

    def prompt_of(self, index: int) -> Prompt:
        """The prompt that rollout number `index` belongs to; `checks/bounds.py` has checked their count."""
        return self.prompts[index // self.rules.group_size]


@dataclass(frozen=True, eq=False)
class Case:
    """A readable file and its terms. `measurements` are there once the model has run (`checks/prefill.py`)."""

    terms: Terms
    header: FileHeader
    rollouts: tuple[Rollout, ...]
    measurements: Measurements | None = None

    @property
    def rules(self) -> Rules:
        return self.terms.rules

    @property
    def environment(self) -> Environment:
        return self.terms.environment

    @property
    def num_units(self) -> int:
        return sum(rollout.num_units for rollout in self.rollouts)

    @cached_property
    def content_hash(self) -> str:
        return content_hash(self.header, self.rollouts)

    @cached_property
    def completions_hash(self) -> str:
        return completions_hash(self.rollouts)


def completions_hash(rollouts: Sequence[Rollout]) -> str:
    """SHA-256 over all completions: the same work under another task, prompt or proof has the same."""
    digest = hashlib.sha256()
    for rollout in rollouts:
        digest.update(len(rollout.output_tokens).to_bytes(4, "little") + rollout.output_tokens.astype("<i4").tobytes())
    return hex0x(digest.digest())


def open_case(file: bytes, terms: Terms) -> Case:
    """The case of a file. Raises MalformedFile where the file isn't exactly the schema."""
    header, rollouts = read_rows(file, terms.rules)
    return Case(terms, header, tuple(rollouts))


def read_rows(file: bytes, rules: Rules) -> tuple[FileHeader, list[Rollout]]:
    """As many as the rules ask for at most. Raises MalformedFile."""
    return read_rollouts(
        file,
        max_rows=rules.group_size * rules.groups_per_task,
        max_tokens=max(rules.sampling.max_new_tokens, MAX_PROMPT_TOKENS),
    )
