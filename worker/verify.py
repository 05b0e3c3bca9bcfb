"""Judging own submissions on this machine: the same checks as a verifier's, with every measured value.

In: `WorkerConfig`, and a submission id (fetched from the coordinator) or nothing (what lies in the
outbox). Out: one `FileReport` a submission.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import httpx
import torch
from pydantic import BaseModel

from protocol.checks.report import FileReport
from protocol.clock import SystemClock
from protocol.errors import UsageError
from protocol.shardcast.client import version_folder
from protocol.wire import Hash32, Signed, Submission, Task
from worker.config import WorkerConfig
from worker.joining import join
from worker.leases import Leases
from worker.membership import Membership
from worker.outbox import Outbox
from worker.selfcheck import findings
from worker.tasks import Tasks
from worker.terms import Terms
from worker.weights import Weights
from worker.work import Work


class _Item(BaseModel):
    """What is to be judged."""

    submission_id: Hash32
    submission: Signed[Submission]
    task: Signed[Task]
    file: bytes


def reports_of(config: WorkerConfig, submission_id: str | None) -> list[FileReport]:
    """Reports on one submission, or on all in the outbox. Raises Unreachable, Rejected, UsageError."""
    torch.set_num_threads(config.num_threads)
    membership = join(config, SystemClock())
    items = [_fetched(membership, submission_id)] if submission_id else _waiting(config)
    if not items:
        raise UsageError("there is nothing to verify", "the outbox is empty", "name a submission's id")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(config, membership, Path(scratch))
        return [bench.report(item) for item in items]


class Bench:
    """Where submissions are judged: rules, environments and weights, apart from a running worker's."""

    def __init__(self, config: WorkerConfig, membership: Membership, scratch: Path) -> None:
        self._membership = membership
        self._held = config.data_dir / "weights"
        self._weights = Weights(scratch / "weights", membership, httpx.Client(timeout=60.0), config.num_versions_kept)
        self._terms = Terms(membership)
        outbox = Outbox(scratch / "outbox", config.give_up_seconds)
        self._tasks = Tasks(membership, Leases(scratch / "leases", membership.domain), outbox)

    def report(self, item: _Item) -> FileReport:
        self._tasks.check_beacon(item.task)
        task = item.task.message
        folder = self._model_folder(task.policy_version)
        rules = self._terms.rules(task.rules_hash)
        environment = self._terms.environment(rules, folder)
        work = Work(item.task, task.id(self._membership.domain), rules, environment)
        found = findings(item.file, item.submission.message.content_hash, work, folder)
        return FileReport.of(found, item.submission_id)

    def _model_folder(self, policy_version: int) -> Path:
        held = version_folder(self._held, policy_version)
        return held if held.exists() else self._weights.fetch(policy_version)


def _fetched(membership: Membership, submission_id: str) -> _Item:
    view = membership.coordinator.submission(submission_id)
    file = membership.coordinator.submission_file(submission_id)
    return _Item(submission_id=submission_id, submission=view.submission, task=view.task, file=file)


def _waiting(config: WorkerConfig) -> list[_Item]:
    outbox = Outbox(config.data_dir / "outbox", config.give_up_seconds)
    return [
        _Item(submission_id=e.submission_id, submission=e.envelope.submission, task=e.task, file=outbox.file(e))
        for e in outbox.pending()
    ]
