"""A submission as a verifier sees it, before any of it is believed.

In: signed messages, file bytes, rules, and facts that come from the chain or the audited log. Out: `Dossier`, and the
`Terms` that its file is judged by (`protocol/checks/case.py`). `check_answered` says whether a task is the one that a
submission answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.checks.case import Terms
from protocol.environments.base import Environment
from protocol.errors import VerificationFailed
from protocol.randomness import task_seed
from protocol.rules import Rules
from protocol.signing import SigningDomain
from protocol.wire import Renewal, Signed, Submission, Task

if TYPE_CHECKING:
    from protocol.forward import CausalLM
    from protocol.weights import ModelConfig

LEASED_FIELDS = ("pool_id", "policy_version", "node", "counter", "rules_hash")
"""What a submission says again of the task that it answers."""

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
    renewal: Signed[Renewal] | None = None
    """What the coordinator signed of a later deadline, if anything."""

    @property
    def deadline(self) -> int:
        """By which it had to be handed in, chain seconds; `checks/envelope.py` checks what this is taken from."""
        return self.task.message.deadline if self.renewal is None else self.renewal.message.deadline

    @property
    def submission_id(self) -> str:
        return self.claim.id(self.facts.domain)

    @property
    def claim(self) -> Submission:
        return self.submission.message

    @property
    def seed(self) -> bytes:
        """The task's seed, from what the node signed and the chain's beacon; never from what the coordinator says."""
        claim = self.claim
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


def terms_of(dossier: Dossier, instruments: Instruments) -> Terms:
    """What the dossier's file is judged by."""
    return Terms(
        rules=dossier.rules,
        environment=instruments.environment,
        model_config=instruments.model_config,
        seed=dossier.seed,
        policy_version=dossier.claim.policy_version,
        max_units=dossier.task.message.max_units,
    )


def check_answered(task: Task, submission: Submission, beacon_hash: str | None) -> None:
    """The task is the one that the node answered, under the chain's beacon of its version (None: not sealed).

    Else a coordinator could have something else judged. Raises VerificationFailed.
    """
    for name in LEASED_FIELDS:
        leased, answered = getattr(task, name), getattr(submission, name)
        if leased != answered:
            raise VerificationFailed(f"task and submission differ in {name}", f"{leased} leased, {answered} submitted")
    if task.beacon_hash != beacon_hash:
        raise VerificationFailed("the task's beacon isn't the chain's", f"{task.beacon_hash}, on chain {beacon_hash}")
