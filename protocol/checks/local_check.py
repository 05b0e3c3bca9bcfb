"""Judge a rollout file on this machine, as a drawn verifier would: nothing is sent, nothing is kept.

In: the file, the signed task that it is for, the pool's rules, a model folder. Out: an `Examination`. Who signed the
submission, when it came in and who was drawn aren't in a file, and aren't judged here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from protocol.checks.audit_rows import Plan, everything
from protocol.checks.case import Terms
from protocol.checks.stages import Examination, examine_file
from protocol.environments.registry import environment_of
from protocol.errors import UsageError
from protocol.randomness import task_seed
from protocol.rules import Rules
from protocol.tokenizer import Tokenizer
from protocol.wire import Signed, Task

if TYPE_CHECKING:
    from protocol.forward import CausalLM

Document = TypeVar("Document", bound=BaseModel)

MAX_FILE_BYTES = 1 << 30
"""Of a file whose rules aren't known yet, and so neither its own bound."""


def check_file(
    file: Path, task_file: Path, rules_file: Path, model_folder: Path, plan: Plan = everything
) -> Examination:
    """Raises UsageError for files that can't be read, ConfigError where environment or model aren't the rules'."""
    rules = read_rules(rules_file)
    terms = terms_of(read_task(task_file).message, rules, model_folder)
    return examine_file(read_bytes(file, rules.max_file_bytes), terms, lambda: load_model(model_folder), plan=plan)


def terms_of(task: Task, rules: Rules, model_folder: Path) -> Terms:
    """What files of this task are judged by. Raises UsageError for rules that it wasn't leased under."""
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


def load_model(folder: Path) -> CausalLM:
    """The model as verifiers run it."""
    from protocol.forward import CausalLM

    return CausalLM.load(folder).eval()


def read_task(path: Path) -> Signed[Task]:
    return _read(path, Signed[Task])


def read_rules(path: Path) -> Rules:
    return _read(path, Rules)


def read_bytes(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """What a file holds; of one that is larger, `max_bytes` + 1 bytes. Raises UsageError."""
    try:
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except OSError as error:
        raise UsageError(f"{path} can't be read", str(error)) from error


def _read(path: Path, shape: type[Document]) -> Document:
    try:
        return shape.model_validate_json(read_bytes(path))
    except ValidationError as error:
        raise UsageError(f"{path} can't be used as {shape.__name__}", str(error).splitlines()[0]) from error
