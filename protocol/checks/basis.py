"""What a file named by hand is judged by: its task, rules and model, and what its node has signed.

    given as files ──┐
                     ├─▶ Basis        a coordinator's word is held against the keys in its pool record, not against
    a coordinator ───┘                the chain: `proofpool worker verify --config` and `audit verify` do that

In: `Given`, and the task that the file names. Out: `Basis`, or UsageError saying what is missing.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from protocol.api import PoolInfo
from protocol.client import CoordinatorClient
from protocol.errors import NotFound, UsageError, VerificationFailed
from protocol.rules import Rules
from protocol.signing import SigningDomain
from protocol.wire import Signed, Task

Document = TypeVar("Document", bound=BaseModel)

MAX_DOCUMENT_BYTES = 1 << 24


@dataclass(frozen=True)
class Given:
    """What is told by hand; the rest is asked of the coordinator. `pool` is what it answers to `GET /v1/pool`."""

    task: Path | None = None
    rules: Path | None = None
    pool: Path | None = None
    model: Path | None = None
    coordinator: str | None = None

    @property
    def missing(self) -> list[str]:
        """Files that nobody can be asked for."""
        return [] if self.coordinator else self._absent

    @property
    def has_all_files(self) -> bool:
        """Whether nobody has to be asked."""
        return not self._absent

    @property
    def _absent(self) -> list[str]:
        files = {"--task": self.task, "--rules": self.rules, "--pool": self.pool, "--model": self.model}
        return [name for name, path in files.items() if path is None]

    def check(self) -> None:
        """Raises UsageError where something is missing, or isn't there."""
        if self.missing:
            raise UsageError(
                "a file can't be judged by itself",
                f"there is no {', '.join(self.missing)}",
                "name its coordinator (--coordinator URL), or hand these in too: docs/verifier.md says where from",
            )
        if self.model is not None and not self.model.is_dir():
            raise UsageError("there is no such model folder", f"{self.model}", "name a folder in Hugging Face format")


@dataclass(frozen=True)
class Claim:
    """What a node has signed and sent."""

    submission_id: str
    content_hash: str
    file_sha256: str


@dataclass(frozen=True)
class Basis:
    """`claim` is None where nothing was handed in for the task, or nobody was asked."""

    task: Task
    task_id: str
    rules: Rules
    claim: Claim | None


def basis_of(given: Given, task_id: str) -> Basis:
    """For a file that says it is of task `task_id`. Raises UsageError, VerificationFailed, Unreachable."""
    if given.coordinator is not None:
        with closing(CoordinatorClient(given.coordinator)) as client:
            return _asked(given, client, task_id)
    given.check()
    assert given.task and given.rules and given.pool
    task, pool = read_document(given.task, Signed[Task]), read_document(given.pool, PoolInfo)
    return _basis(pool, task, read_document(given.rules, Rules), None)


def claim_of(client: CoordinatorClient, submission_id: str) -> Claim:
    """As the coordinator has it. Raises NotFound, Unreachable."""
    view = client.submission(submission_id)
    return Claim(submission_id, view.submission.message.content_hash, view.file_sha256)


def model_of(given: Given, basis: Basis, scratch: Path) -> Path:
    """The model folder: the one that was given, or the policy version as the pool's servers have it."""
    if given.model is not None:
        return given.model
    assert given.coordinator
    with closing(CoordinatorClient(given.coordinator)) as client:
        return fetched_weights(client, basis.task.policy_version, scratch)


_DOCUMENTS: dict[type[BaseModel], tuple[str, str]] = {
    Signed[Task]: ("a signed task", "take it from the coordinator: GET /v1/submissions/ID has it as `task`"),
    Rules: ("a rules document", "take it from the coordinator: GET /v1/rules/RULES_HASH"),
    PoolInfo: ("a pool's description", "take it from the coordinator: GET /v1/pool"),
}
"""What a file has to be, and where one comes from."""


def read_document(path: Path, shape: type[Document]) -> Document:
    """A JSON document that was named by hand. Raises UsageError."""
    try:
        with path.open("rb") as file:
            return shape.model_validate_json(file.read(MAX_DOCUMENT_BYTES))
    except OSError as error:
        raise UsageError("a file can't be read", f"{path}: {error.strerror}", "check the path") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        what, todo = _DOCUMENTS.get(shape, ("that document", "docs/verifier.md says where each comes from"))
        raise UsageError(
            f"this isn't {what}", f"{path}: {first['msg']}{f' at `{place}`' if place else ''}", todo
        ) from error


def domain_of(pool: PoolInfo) -> SigningDomain:
    return SigningDomain(pool.chain_id, pool.contracts.ledger, pool.deployment_salt)


def _asked(given: Given, client: CoordinatorClient, task_id: str) -> Basis:
    pool = read_document(given.pool, PoolInfo) if given.pool else client.pool()
    try:
        view = client.task(task_id)
    except NotFound as error:
        why = f"the file names task {task_id}"
        raise UsageError("the coordinator has leased no such task", why, "is it the file's coordinator?") from error
    task = read_document(given.task, Signed[Task]) if given.task else view.task
    rules = read_document(given.rules, Rules) if given.rules else client.rules(task.message.rules_hash)
    basis = _basis(pool, task, rules, claim_of(client, view.submission_id) if view.submission_id else None)
    if given.task is None and basis.task_id != task_id:
        raise VerificationFailed("the coordinator served another task", f"{basis.task_id}, not {task_id}")
    return basis


def _basis(pool: PoolInfo, task: Signed[Task], rules: Rules, claim: Claim | None) -> Basis:
    domain = domain_of(pool)
    return Basis(task.check(pool.coordinator, domain), task.message.id(domain), rules, claim)


def fetched_weights(client: CoordinatorClient, policy_version: int, scratch: Path) -> Path:
    """A policy version, byte by byte as its trainer signed it."""
    from protocol.shardcast.client import fetch
    from protocol.shardcast.line import weights_client

    pool = client.pool()
    release = client.weights(policy_version).release.check(pool.trainer, domain_of(pool))
    if (release.pool_id, release.policy_version) != (pool.pool_id, policy_version):
        raise VerificationFailed("the coordinator served another release", f"version {release.policy_version}")
    with weights_client() as http:
        return fetch(http, pool.shardcast_urls, release, scratch).folder
