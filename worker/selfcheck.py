"""The worker judges its own file before anybody else does: a fault of this machine must show here.

    file ─ strict read ─▶ content id ─▶ the verifier's own checks (`protocol/checks`), with a forward pass that shares
    nothing with the engine but the weights ─▶ SelfCheckFailed, or nothing

In: a file that is about to be sent, and the task's work. A file that fails is never sent and never
mended. `examine_own` is behind `proofpool worker verify`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from protocol.checks import content
from protocol.checks.case import Terms
from protocol.checks.local_check import load_model
from protocol.checks.stages import Check, Examination, examine_file, worst
from protocol.errors import VerificationFailed
from protocol.reasons import Outcome, RejectReason
from protocol.weights import ModelConfig
from worker.work import Work


class SelfCheckFailed(VerificationFailed):
    """This machine's own work doesn't hold; sent, it would be rejected or slashed."""


def check_file(file: bytes, claimed_hash: str, work: Work, model_folder: Path) -> None:
    """Raises SelfCheckFailed with the worst of what a verifier would hold against the file."""
    decisive = worst(examine_own(file, claimed_hash, work, model_folder).results)
    if decisive.outcome != Outcome.ACCEPT:
        raise SelfCheckFailed(
            f"own work failed the check `{decisive.check}` and wasn't sent",
            f"{decisive.reason}: {decisive.detail or f'{decisive.value} over {decisive.reject_threshold}'}",
            RejectReason(decisive.reason).hint if decisive.reason else "",
        )


def examine_own(file: bytes, claimed_hash: str | None, work: Work, model_folder: Path) -> Examination:
    """What a verifier will find, cheapest first; over every rollout, whatever the pool's verifiers audit.

    `claimed_hash` is the content that the submission signs for, None where nothing is signed yet.
    """
    first: tuple[Check, ...] = (partial(content.check, work.task_id, claimed_hash),)
    terms = partial(terms_of, work, model_folder)
    return examine_file(file, work.rules, terms, lambda: load_model(model_folder), first=first)


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
