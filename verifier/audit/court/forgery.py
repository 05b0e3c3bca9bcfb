"""Is it a forgery? An auditor judges a submission itself before it puts a bond on that.

In: a submission's id, its coordinator, the chain. Out: the report of all checks, over every rollout. Task, keys, beacon
and weights are held against the chain first: else a coordinator could have an auditor find forged what is honest, and
lose its bond.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from protocol.api import SubmissionView
from protocol.chain.pool import ChainPool
from protocol.checks.basis import Given
from protocol.checks.local_check import check_bytes
from protocol.checks.report import FileReport
from protocol.client import CoordinatorClient
from protocol.errors import VerificationFailed
from protocol.progress import Steps, Unseen
from protocol.reasons import RejectReason
from protocol.wire import WeightsRelease
from verifier.audit.replay.pinned import ModelSource
from verifier.audit.step import must_equal
from verifier.case import check_answered


def judge_again(
    coordinator: str,
    client: CoordinatorClient,
    chain: ChainPool,
    view: SubmissionView,
    source: ModelSource,
    progress: Steps | None = None,
) -> FileReport:
    """All checks of a submission whose signature has been checked.

    Raises VerificationFailed where the coordinator's word isn't the chain's, or the file isn't what was signed;
    UsageError where the model isn't the version's, Unreachable where nobody has that.
    """
    submission, submission_id, record = view.submission.message, view.submission_id, chain.record()
    version = chain.version(submission.policy_version)
    check_answered(view.task.check(record.coordinator, chain.domain), submission, version.beacon_hash)
    progress = progress or Unseen()
    release = WeightsRelease(
        pool_id=chain.pool_id, policy_version=version.policy_version, manifest_hash=version.manifest_hash
    )
    model = source.folder(release, progress)
    progress.step()
    progress.doing("the checks of every rollout")
    with tempfile.TemporaryDirectory(prefix="proofpool-challenge-") as scratch:
        task, pool = Path(scratch, "task.json"), Path(scratch, "pool.json")
        task.write_text(view.task.model_dump_json())
        pool.write_text(client.pool().model_copy(update={"coordinator": record.coordinator}).model_dump_json())
        given = Given(task=task, pool=pool, model=model, coordinator=coordinator)
        report = check_bytes(client.submission_file(submission_id), given, submission_id=submission_id).report
    progress.step()
    must_equal("the file isn't the one that was signed", report.content_hash, submission.content_hash)
    return report


def reason_of(report: FileReport) -> RejectReason:
    """What it is to be challenged for. Raises VerificationFailed where no check would slash it."""
    if report.outcome != "slash" or report.reason is None:
        raise VerificationFailed(
            "this machine finds no forgery",
            f"{report.outcome}{f': {report.reason}' if report.reason else ''}, {report.num_audited} rollouts judged",
            "a false challenge costs its bond; --without-check --reason CODE for what was judged elsewhere",
        )
    return RejectReason(report.reason)
