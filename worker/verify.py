"""Judging own submissions on this machine: the same checks as a verifier's, with every measured value.

In: `WorkerConfig`, and a submission id (fetched from the coordinator), a file (before it is sent, or a copy), or
nothing (what lies in the outbox). Out: one `FileReport` a submission.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from protocol.canonical import is_hash32
from protocol.checks.basis import Given, read_document
from protocol.checks.local_check import read_bytes
from protocol.checks.report import FileReport
from protocol.clock import SystemClock
from protocol.errors import MalformedFile, NotFound, UsageError, VerificationFailed
from protocol.rollouts import read_header
from protocol.rules import Rules
from protocol.shardcast.folder import version_folder
from protocol.shardcast.line import weights_client
from protocol.wire import Signed, Submission, Task
from worker.config import WorkerConfig
from worker.joining import join
from worker.leases import Leases
from worker.membership import Membership
from worker.outbox import Outbox
from worker.selfcheck import examine_own
from worker.tasks import Tasks
from worker.terms import Terms
from worker.weights import Weights
from worker.work import Work

NOTHING = Given()


@dataclass(frozen=True)
class Item:
    """What is to be judged; a bare file has no submission yet."""

    task: Signed[Task]
    file: bytes
    submission: Signed[Submission] | None = None
    submission_id: str | None = None


def reports_of(config: WorkerConfig, subject: str | None, given: Given = NOTHING) -> list[FileReport]:
    """Reports on a submission, a file, or on all in the outbox. Raises Unreachable, Rejected, UsageError."""
    membership = join(config, SystemClock())
    items = _items(config, membership, subject, given)
    if not items:
        raise UsageError("there is nothing to verify", "the outbox is empty", "name a submission's id or a file")
    torch.set_num_threads(config.num_threads)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(config, membership, Path(scratch), given)
        return [bench.report(item) for item in items]


class Bench:
    """Where submissions are judged: rules, environments and weights, apart from a running worker's."""

    def __init__(self, config: WorkerConfig, membership: Membership, scratch: Path, given: Given) -> None:
        self._membership = membership
        self._given = given
        self._held = config.data_dir / "weights"
        self._weights = Weights(
            scratch / "weights",
            membership,
            weights_client(),
            config.num_versions_kept,
        )
        self._terms = Terms(membership)
        outbox = Outbox(scratch / "outbox", config.give_up_seconds)
        self._tasks = Tasks(membership, Leases(scratch / "leases", membership.domain), outbox)

    def report(self, item: Item) -> FileReport:
        self._tasks.check_beacon(item.task)
        task = item.task.message
        folder = self._given.model or self._model_folder(task.policy_version)
        rules = read_document(self._given.rules, Rules) if self._given.rules else self._terms.rules(task.rules_hash)
        environment = self._terms.environment(rules, folder)
        work = Work(item.task, task.id(self._membership.domain), rules, environment)
        claimed_hash = item.submission.message.content_hash if item.submission else None
        found = examine_own(item.file, claimed_hash, work, folder)
        return FileReport.of(found, item.submission_id, claimed_hash)

    def _model_folder(self, policy_version: int) -> Path:
        held = version_folder(self._held, policy_version)
        return held if held.exists() else self._weights.fetch(policy_version)


def _items(config: WorkerConfig, membership: Membership, subject: str | None, given: Given) -> list[Item]:
    if subject is None:
        return _waiting(config)
    if is_hash32(subject):
        return [_refused(config, subject) or _fetched(membership, subject)]
    file = read_bytes(Path(subject))
    if given.task:
        return [Item(read_document(given.task, Signed[Task]), file)]
    try:
        task_id = read_header(file).task_id
    except MalformedFile as error:
        raise UsageError("whose the file is can't be read from it", str(error), "give --task") from error
    return [_held(file, task_id, config, membership) or _leased(file, task_id, membership)]


def _fetched(membership: Membership, submission_id: str) -> Item:
    view = membership.coordinator.submission(submission_id)
    file = membership.coordinator.submission_file(submission_id)
    return Item(view.task, file, view.submission, submission_id)


def _refused(config: WorkerConfig, submission_id: str) -> Item | None:
    """One that the coordinator has refused, and keeps no file of; None where it isn't kept here either."""
    outbox = Outbox(config.data_dir / "outbox", config.give_up_seconds)
    entry = next((one for one in outbox.refused() if one.submission_id == submission_id), None)
    if entry is None:
        return None
    return Item(entry.task, outbox.refused_file(entry), entry.envelope.submission, submission_id)


def _waiting(config: WorkerConfig) -> list[Item]:
    outbox = Outbox(config.data_dir / "outbox", config.give_up_seconds)
    return [Item(e.task, outbox.file(e), e.envelope.submission, e.submission_id) for e in outbox.pending()]


def _held(file: bytes, task_id: str, config: WorkerConfig, membership: Membership) -> Item | None:
    """With its task, if this machine holds it: nothing is handed in for it yet, or it waits in the outbox."""
    waiting = [replace(item, file=file) for item in _waiting(config)]
    leases = Leases(config.data_dir / "leases", membership.domain).open()
    items = [*waiting, *(Item(task, file) for task in leases)]
    return next((item for item in items if item.task.message.id(membership.domain) == task_id), None)


def _leased(file: bytes, task_id: str, membership: Membership) -> Item:
    """With its task as the coordinator has leased it, and what was handed in for it."""
    try:
        view = membership.coordinator.task(task_id)
    except NotFound as error:
        why = f"the file is for task {task_id}, which neither this machine nor the coordinator knows"
        raise UsageError("nobody knows the file's task", why, "give --task") from error
    if view.task.check(membership.chain.record().coordinator, membership.domain).id(membership.domain) != task_id:
        raise VerificationFailed("the coordinator served another task", f"it isn't {task_id}")
    if view.submission_id is None:
        return Item(view.task, file)
    return replace(_fetched(membership, view.submission_id), file=file)
