"""Judge a rollout file on this machine, as a drawn verifier would: nothing is sent, nothing is kept.

In: the file, the signed task that it is for, the pool's rules, a model folder. Out: a `CheckResult` a check. Who signed
the submission, when it came in and who was drawn aren't in a file, and aren't judged here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from protocol.checks.case import Terms, open_case
from protocol.checks.results import passed, refused
from protocol.checks.stages import run_checks
from protocol.environments.registry import environment_of
from protocol.errors import MalformedFile, UsageError
from protocol.randomness import task_seed
from protocol.reasons import RejectReason
from protocol.rules import Rules
from protocol.tokenizer import Tokenizer
from protocol.wire import CheckResult, Signed, Task

Document = TypeVar("Document", bound=BaseModel)


def check_file(file: Path, task_file: Path, rules_file: Path, model_folder: Path) -> list[CheckResult]:
    """Raises UsageError for files that can't be read, ConfigError where environment or model aren't the rules'."""
    from protocol.forward import CausalLM

    terms = _terms(_read(task_file, Signed[Task]).message, _read(rules_file, Rules), model_folder)
    try:
        case = open_case(_bytes(file), terms)
    except MalformedFile as error:
        return [refused("schema", RejectReason.SCHEMA_INVALID, str(error))]
    found = run_checks(case, lambda: CausalLM.load(model_folder).eval())
    return [passed("schema", num_audited=len(case.rollouts)), *found.results]


def _terms(task: Task, rules: Rules, model_folder: Path) -> Terms:
    from protocol.weights import ModelConfig

    if rules.rules_hash != task.rules_hash:
        raise UsageError("the rules aren't the task's", f"{rules.rules_hash}, leased under {task.rules_hash}")
    return Terms(
        rules=rules,
        environment=environment_of(rules.environment, Tokenizer.load(model_folder)),
        model_config=ModelConfig.load(model_folder),
        seed=task_seed(task.pool_id, task.policy_version, task.node, task.counter, task.beacon_hash),
        policy_version=task.policy_version,
        max_units=task.max_units,
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} can't be read", str(error)) from error


def _read(path: Path, shape: type[Document]) -> Document:
    try:
        return shape.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} can't be used as {shape.__name__}", str(error).splitlines()[0]) from error
