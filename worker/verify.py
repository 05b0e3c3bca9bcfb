"""Judging own submissions on this machine: the same checks as a verifier's, with every measured value.

In: `WorkerConfig`, and a submission id (fetched from the coordinator), a file (before it is sent, or a copy), or
nothing (what lies in the outbox). Out: one `FileReport` a submission.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx
import torch

from protocol.canonical import is_hash32
from protocol.checks.local_check import check_file, read_bytes, read_rules, read_task
from protocol.checks.report import FileReport
from protocol.clock import SystemClock
from protocol.errors import MalformedFile, UsageError
from protocol.rollouts import read_rollouts
from protocol.shardcast.client import version_folder
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

MAX_ROWS = 1 << 16
MAX_TOKENS = 1 << 17
"""Where to stop reading a file of one's own to see which task it names; the rules' own bounds come with the task."""


@dataclass(frozen=True)
class Given:
    """What is told by hand about a file; the rest follows from configuration and coordinator."""

    task: Path | None = None
    rules: Path | None = None
    model: Path | None = None

    @property
    def is_all(self) -> bool:
        """Whether nobody has to be asked."""
        return None not in (self.task, self.rules, self.model)


NOTHING = Given()


@dataclass(frozen=True)
class Item:
    """What is to be judged; a bare file has no submission yet."""

    task: Signed[Task]
    file: bytes
    submission: Signed[Submission] | None = None
    submission_id: str | None = None


def report_on_file(file: Path, given: Given) -> FileReport:
    """A file with all that judging it takes: no configuration is needed. Raises UsageError."""
    if given.task is None or given.rules is None or given.model is None:
        raise UsageError("a file can't be judged by itself", "task, rules or model is missing", "give all three")
    return FileReport.of(check_file(file, given.task, given.rules, given.model))


def reports_of(config: WorkerConfig, subject: str | None, given: Given = NOTHING) -> list[FileReport]:
    """Reports on a submission, a file, or on all in the outbox. Raises Unreachable, Rejected, UsageError."""
    torch.set_num_threads(config.num_threads)
    membership = join(config, SystemClock())
    items = _items(config, membership, subject, given)
    if not items:
        raise UsageError("there is nothing to verify", "the outbox is empty", "name a submission's id or a file")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(config, membership, Path(scratch), given)
        return [bench.report(item) for item in items]


class Bench:
    """Where submissions are judged: rules, environments and weights, apart from a running worker's."""

    def __init__(self, config: WorkerConfig, membership: Membership, scratch: Path, given: Given) -> None:
        self._membership = membership
        self._given = given
        self._held = config.data_dir / "weights"
        self._weights = Weights(scratch / "weights", membership, httpx.Client(timeout=60.0), config.num_versions_kept)
        self._terms = Terms(membership)
        outbox = Outbox(scratch / "outbox", config.give_up_seconds)
        self._tasks = Tasks(membership, Leases(scratch / "leases", membership.domain), outbox)

    def report(self, item: Item) -> FileReport:
        self._tasks.check_beacon(item.task)
        task = item.task.message
        folder = self._given.model or self._model_folder(task.policy_version)
        rules = read_rules(self._given.rules) if self._given.rules else self._terms.rules(task.rules_hash)
        environment = self._terms.environment(rules, folder)
        work = Work(item.task, task.id(self._membership.domain), rules, environment)
        claimed_hash = item.submission.message.content_hash if item.submission else None
        return FileReport.of(examine_own(item.file, claimed_hash, work, folder), item.submission_id)

    def _model_folder(self, policy_version: int) -> Path:
        held = version_folder(self._held, policy_version)
        return held if held.exists() else self._weights.fetch(policy_version)


def _items(config: WorkerConfig, membership: Membership, subject: str | None, given: Given) -> list[Item]:
    if subject is None:
        return _waiting(config)
    if is_hash32(subject):
        return [_fetched(membership, subject)]
    file = read_bytes(Path(subject))
    return [Item(read_task(given.task) if given.task else _task_of(file, config, membership), file)]


def _fetched(membership: Membership, submission_id: str) -> Item:
    view = membership.coordinator.submission(submission_id)
    file = membership.coordinator.submission_file(submission_id)
    return Item(view.task, file, view.submission, submission_id)


def _waiting(config: WorkerConfig) -> list[Item]:
    outbox = Outbox(config.data_dir / "outbox", config.give_up_seconds)
    return [Item(e.task, outbox.file(e), e.envelope.submission, e.submission_id) for e in outbox.pending()]


def _task_of(file: bytes, config: WorkerConfig, membership: Membership) -> Signed[Task]:
    """The task that the file names, among those that this machine holds."""
    try:
        header, _ = read_rollouts(file, max_rows=MAX_ROWS, max_tokens=MAX_TOKENS)
    except MalformedFile as error:
        raise UsageError("whose the file is can't be read from it", str(error), "give --task") from error
    held = [item.task for item in _waiting(config)]
    held += Leases(config.data_dir / "leases", membership.domain).open()
    for task in held:
        if task.message.id(membership.domain) == header.task_id:
            return task
    raise UsageError("no task on this machine is the file's", header.task_id, "give --task")
