"""Judge a rollout file on this machine, as a drawn verifier would: nothing is sent, nothing is kept.

In: the file, the signed task that it is for, the pool's rules, a model folder. Out: a `Finding`. Who signed the
submission, when it came in and who was drawn aren't in a file, and aren't judged here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from protocol.environments.registry import environment_of
from protocol.errors import UsageError
from protocol.rules import Rules
from protocol.signing import SigningDomain
from protocol.tokenizer import Tokenizer
from protocol.wire import ZERO_ADDRESS, ZERO_HASH, Signed, Submission, Task
from verifier.case import Dossier, Facts, Instruments
from verifier.pipeline import CHEAP, Finding, examine

NOT_SIGNED = "0x" + "00" * 65
NOWHERE = SigningDomain(chain_id=0, contract=ZERO_ADDRESS, salt=ZERO_HASH)
ROW_CHECKS = CHEAP[1:]
"""All but the envelope."""

Document = TypeVar("Document", bound=BaseModel)


def check_file(file: Path, task_file: Path, rules_file: Path, model_folder: Path) -> Finding:
    """Raises UsageError for files that can't be read, ConfigError where environment or model aren't the rules'."""
    from protocol.forward import CausalLM
    from protocol.weights import ModelConfig

    task = _read(task_file, Signed[Task]).message
    rules = _read(rules_file, Rules)
    if rules.rules_hash != task.rules_hash:
        raise UsageError("the rules aren't the task's", f"{rules.rules_hash}, leased under {task.rules_hash}")
    instruments = Instruments(
        environment=environment_of(rules.environment, Tokenizer.load(model_folder)),
        model_config=ModelConfig.load(model_folder),
        load_model=lambda: CausalLM.load(model_folder).eval(),
        find_twin=lambda node, completions_hash, submission_id: None,
    )
    return examine(_dossier(file, task, rules), instruments, ROW_CHECKS)


def _dossier(file: Path, task: Task, rules: Rules) -> Dossier:
    """What can be said of a file that nobody has signed for: the seed follows from the task alone."""
    submission = Submission(
        pool_id=task.pool_id,
        policy_version=task.policy_version,
        node=task.node,
        counter=task.counter,
        rules_hash=task.rules_hash,
        content_hash=ZERO_HASH,
    )
    facts = Facts(
        domain=NOWHERE,
        coordinator=ZERO_ADDRESS,
        beacon_hash=task.beacon_hash,
        received_time=0,
        rules_hashes=frozenset({task.rules_hash}),
    )
    return Dossier(
        submission=Signed[Submission](message=submission, signature=NOT_SIGNED),
        task=Signed[Task](message=task, signature=NOT_SIGNED),
        file=file.read_bytes(),
        rules=rules,
        facts=facts,
    )


def _read(path: Path, shape: type[Document]) -> Document:
    try:
        return shape.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} can't be used as {shape.__name__}", str(error).splitlines()[0]) from error
