"""A submission as a verifier sees it: first what was fetched, then what it says.

In: `Dossier` (signed messages, file bytes, rules, and facts that come from the chain or the audited log).
Out: `Case`, frozen, with the file parsed and the seed derived; every check takes a `Case` and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from protocol.canonical import hex0x
from protocol.environments.base import Environment
from protocol.prompts import Prompt, task_prompts
from protocol.randomness import task_seed
from protocol.rollouts import FileHeader, Rollout, content_hash, read_rollouts
from protocol.rules import Rules
from protocol.signing import SigningDomain
from protocol.wire import Signed, Submission, Task

if TYPE_CHECKING:
    from protocol.forward import CausalLM
    from protocol.weights import ModelConfig
    from verifier.measurements import Measurements

MAX_PROMPT_TOKENS = 8192
"""How long a row's prompt may be before the file isn't read on; the right length is `checks/prompts.py`'s business."""

FindTwin = Callable[[str, str, str], str | None]
"""(node, completions hash, submission id) to the id of another submission of that node with these completions."""


@dataclass(frozen=True)
class Facts:
    """What the verifier knows of a submission from the chain and from the log that the chain anchors.

    `beacon_hash` is beacon(policy version), None where none is sealed; `received_time` is in chain seconds;
    `rules_hashes` are the rules that the pool's record has named so far.
    """

    domain: SigningDomain
    coordinator: str
    beacon_hash: str | None
    received_time: int
    rules_hashes: frozenset[str]


@dataclass(frozen=True, eq=False)
class Dossier:
    """Everything about one submission, before any of it is believed."""

    submission: Signed[Submission]
    task: Signed[Task]
    file: bytes
    rules: Rules
    facts: Facts

    @property
    def submission_id(self) -> str:
        return self.submission.message.id(self.facts.domain)

    @property
    def seed(self) -> bytes:
        """The task's seed, from what the node signed and the chain's beacon; never from what the coordinator says."""
        claim = self.submission.message
        beacon_hash = self.facts.beacon_hash or self.task.message.beacon_hash
        return task_seed(claim.pool_id, claim.policy_version, claim.node, claim.counter, beacon_hash)


@dataclass(frozen=True)
class Instruments:
    """What a verifier examines a dossier with: the pool's environment, the version's model, and its own memory.

    `load_model` is called for files that pass all cheap checks only.
    """

    environment: Environment
    model_config: ModelConfig
    load_model: Callable[[], CausalLM]
    find_twin: FindTwin


@dataclass(frozen=True, eq=False)
class Case:
    """A dossier whose file is readable. `measurements` are there once the model has run (`checks/prefill.py`)."""

    dossier: Dossier
    header: FileHeader
    rollouts: tuple[Rollout, ...]
    instruments: Instruments
    measurements: Measurements | None = None

    @property
    def environment(self) -> Environment:
        return self.instruments.environment

    @property
    def rules(self) -> Rules:
        return self.dossier.rules

    @property
    def claim(self) -> Submission:
        return self.dossier.submission.message

    @property
    def num_units(self) -> int:
        return sum(rollout.num_units for rollout in self.rollouts)

    @cached_property
    def prompts(self) -> list[Prompt]:
        """What the seed asks, one prompt a group."""
        return task_prompts(self.rules, self.environment, self.dossier.seed)

    def prompt_of(self, index: int) -> Prompt:
        """The prompt that rollout number `index` belongs to; `checks/bounds.py` has checked their count."""
        return self.prompts[index // self.rules.group_size]

    @cached_property
    def content_hash(self) -> str:
        return content_hash(self.header, self.rollouts)

    @cached_property
    def completions_hash(self) -> str:
        """SHA-256 over all completions: the same work under another task, prompt or proof has the same."""
        digest = hashlib.sha256()
        for rollout in self.rollouts:
            digest.update(
                len(rollout.output_tokens).to_bytes(4, "little") + rollout.output_tokens.astype("<i4").tobytes()
            )
        return hex0x(digest.digest())


def open_case(dossier: Dossier, instruments: Instruments) -> Case:
    """The case of a dossier. Raises MalformedFile where the file isn't exactly the schema."""
    rules = dossier.rules
    header, rollouts = read_rollouts(
        dossier.file,
        max_rows=rules.group_size * rules.groups_per_task,
        max_tokens=max(rules.sampling.max_new_tokens, MAX_PROMPT_TOKENS),
    )
    return Case(dossier, header, tuple(rollouts), instruments)
