"""The worker judges its own file before anybody else does: a fault of this machine must show here.

    file ─ strict read ─▶ content id ─▶ the verifier's own checks (`protocol/checks`), with a forward pass that shares
    nothing with the engine but the weights ─▶ SelfCheckFailed, or nothing

In: a file that is about to be sent, and the task's work. A file that fails is never sent and never
mended. `findings` is what `proofpool worker verify` prints.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from protocol.checks.case import Case, Terms, open_case
from protocol.checks.results import passed, refused
from protocol.checks.stages import CHEAP, Check, run_checks, worst
from protocol.errors import MalformedFile, VerificationFailed
from protocol.forward import CausalLM
from protocol.reasons import Outcome, RejectReason
from protocol.weights import ModelConfig
from protocol.wire import CheckResult
from worker.work import Work


class SelfCheckFailed(VerificationFailed):
    """This machine's own work doesn't hold; sent, it would be rejected or slashed."""


def check_file(file: bytes, claimed_hash: str, work: Work, model_folder: Path) -> None:
    """Raises SelfCheckFailed with the worst of what a verifier would hold against the file."""
    decisive = worst(findings(file, claimed_hash, work, model_folder))
    if decisive.outcome != Outcome.ACCEPT:
        raise SelfCheckFailed(
            f"own work failed the check `{decisive.check}` and wasn't sent",
            f"{decisive.reason}: {decisive.detail or f'{decisive.value} over {decisive.reject_threshold}'}",
            RejectReason(decisive.reason).hint if decisive.reason else "",
        )


def findings(file: bytes, claimed_hash: str, work: Work, model_folder: Path) -> list[CheckResult]:
    """Every check's result, cheapest first, ending where the cheap ones refuse."""
    try:
        case = open_case(file, terms_of(work, model_folder))
    except MalformedFile as error:
        return [refused("schema", RejectReason.SCHEMA_INVALID, str(error))]
    content: tuple[Check, ...] = (partial(_check_content, claimed_hash, work),)
    return [passed("schema"), *run_checks(case, lambda: CausalLM.load(model_folder).eval(), content + CHEAP).results]


def terms_of(work: Work, model_folder: Path) -> Terms:
    """What a verifier will judge this work's file by."""
    return Terms(
        rules=work.rules,
        environment=work.environment,
        model_config=ModelConfig.load(model_folder),
        seed=work.seed,
        policy_version=work.task.policy_version,
        max_units=work.task.max_units,
    )


def _check_content(claimed_hash: str, work: Work, case: Case) -> CheckResult:
    """The file is what the submission signs for, and for this task."""
    if case.content_hash != claimed_hash:
        return refused("content", RejectReason.FILE_MISMATCH, f"the file has {case.content_hash}")
    if case.header.task_id != work.task_id:
        return refused("content", RejectReason.FILE_MISMATCH, f"the file is for task {case.header.task_id}")
    return passed("content")
