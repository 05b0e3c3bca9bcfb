"""Judge a rollout file on this machine, as a drawn verifier would: nothing is sent, nothing is kept.

    the file's header ─▶ Basis: task, rules, what was signed ─▶ is it of that task? ─▶ the checks, the model last

In: the file, and what it is judged by (`protocol/checks/basis.py`). Out: `LocalCheck`. Who signed the submission, when
it came in and who was drawn aren't in a file, and aren't judged here.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.canonical import hex0x, is_hash32, sha256
from protocol.checks import content
from protocol.checks.audit_rows import Plan, everything
from protocol.checks.basis import Basis, Claim, Given, basis_of, claim_of, model_of
from protocol.checks.case import Terms
from protocol.checks.report import FileReport
from protocol.checks.results import refused
from protocol.checks.stages import SCHEMA_NAME, Examination, examine_file
from protocol.client import CoordinatorClient
from protocol.environments.registry import environment_of
from protocol.errors import MalformedFile, UsageError
from protocol.randomness import task_seed
from protocol.reasons import RejectReason
from protocol.rollouts import read_header
from protocol.rules import Rules
from protocol.tokenizer import Tokenizer
from protocol.wire import Task

if TYPE_CHECKING:
    from protocol.forward import CausalLM

MAX_FILE_BYTES = 1 << 30
"""Of a file whose rules aren't known yet, and so neither its own bound."""


@dataclass(frozen=True, eq=False)
class LocalCheck:
    """What was found, and the submission that the file was compared with, if there is one."""

    found: Examination
    claim: Claim | None

    @property
    def report(self) -> FileReport:
        claim = self.claim
        return FileReport.of(self.found, claim.submission_id if claim else None, claim.content_hash if claim else None)


def check_subject(subject: str, given: Given) -> LocalCheck:
    """As `check_file`, or of a submission that the coordinator has, by its id."""
    if not is_hash32(subject):
        return check_file(Path(subject), given)
    if given.coordinator is None:
        raise UsageError(
            "a submission can't be fetched", subject, "name its coordinator (--coordinator URL), or a file"
        )
    with closing(CoordinatorClient(given.coordinator)) as client:
        file = client.submission_file(subject)
    return check_bytes(file, given, submission_id=subject)


def check_readable(file: Path) -> LocalCheck | None:
    """What is wrong with a file whose header can't be read, before anything is loaded; None where it can."""
    try:
        read_header(read_bytes(file))
    except MalformedFile as error:
        return LocalCheck(_unreadable(error), None)
    return None


def check_file(file: Path, given: Given, plan: Plan = everything, submission_id: str | None = None) -> LocalCheck:
    """Raises UsageError for what can't be read or is missing, ConfigError where environment or model aren't the rules'.

    With a coordinator the file is held against what was submitted for its task, or against `submission_id`.
    """
    given.check()
    return check_bytes(read_bytes(file), given, plan, submission_id)


def check_bytes(data: bytes, given: Given, plan: Plan = everything, submission_id: str | None = None) -> LocalCheck:
    """As `check_file`."""
    claim = _named(given, submission_id)
    try:
        header = read_header(data)
    except MalformedFile as error:
        return LocalCheck(_compared(_unreadable(error), data, claim), claim)
    basis = basis_of(given, header.task_id)
    claim = claim or basis.claim
    if (other_task := content.check_header(basis.task_id, header)) is not None:
        return LocalCheck(Examination(None, (other_task,)), claim)
    check_rules(basis.task, basis.rules)
    with tempfile.TemporaryDirectory(prefix="proofpool-check-") as scratch:
        return LocalCheck(_compared(_examined(data, given, basis, claim, plan, Path(scratch)), data, claim), claim)


def _unreadable(error: MalformedFile) -> Examination:
    return Examination(None, (refused(SCHEMA_NAME, RejectReason.SCHEMA_INVALID, str(error)),))


def _named(given: Given, submission_id: str | None) -> Claim | None:
    """What was submitted under an id, where somebody can be asked."""
    if given.coordinator is None or submission_id is None:
        return None
    with closing(CoordinatorClient(given.coordinator)) as client:
        return claim_of(client, submission_id)


def _examined(data: bytes, given: Given, basis: Basis, claim: Claim | None, plan: Plan, scratch: Path) -> Examination:
    """The checks; weights and all that is slow to load come when the file has turned out to be readable."""
    folder = cache(partial(model_of, given, basis, scratch))
    return examine_file(
        data,
        basis.rules,
        lambda: terms_of(basis.task, basis.rules, folder()),
        lambda: load_model(folder()),
        first=(partial(content.check, basis.task_id, claim.content_hash if claim else None),),
        plan=plan,
    )


def _compared(found: Examination, data: bytes, claim: Claim | None) -> Examination:
    """A file that can't be read says whether it is the one that was sent."""
    file_sha256 = hex0x(sha256(data))
    if found.case is not None or claim is None or file_sha256 == claim.file_sha256:
        return found
    last = found.results[-1]
    detail = f"damaged: its SHA-256 is {file_sha256}, {claim.file_sha256} was sent; {last.detail}"
    return replace(found, results=(*found.results[:-1], last.model_copy(update={"detail": detail})))


def terms_of(task: Task, rules: Rules, model_folder: Path) -> Terms:
    """What files of this task are judged by. Raises ConfigError where environment or model aren't the rules'."""
    from protocol.weights import ModelConfig

    return Terms(
        rules=rules,
        environment=environment_of(rules.environment, Tokenizer.load(model_folder)),
        model_config=ModelConfig.load(model_folder),
        seed=task_seed(task.pool_id, task.policy_version, task.node, task.counter, task.beacon_hash),
        policy_version=task.policy_version,
        max_units=task.max_units,
    )


def check_rules(task: Task, rules: Rules) -> None:
    """Raises UsageError for rules that the task wasn't leased under."""
    if rules.rules_hash != task.rules_hash:
        raise UsageError("the rules aren't the task's", f"{rules.rules_hash}, leased under {task.rules_hash}")


def load_model(folder: Path) -> CausalLM:
    """The model as verifiers run it."""
    from protocol.forward import CausalLM

    return CausalLM.load(folder).eval()


def read_bytes(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """What a file holds; of one that is larger, `max_bytes` + 1 bytes. Raises UsageError."""
    try:
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except OSError as error:
        raise UsageError("a file can't be read", f"{path}: {error.strerror}", "check the path") from error
