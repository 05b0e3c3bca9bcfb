"""The outbox: what this node has signed stays on disk until the coordinator has answered for good.

    put: TASK.parquet, then TASK.json (the moment it counts)   send: PUT, as often as it takes
    answered: TASK.answer.json, then TASK.json and TASK.parquet go; to refused/ where the answer is a final refusal

In: a task, its signed submission and file. Out: receipts. Killed between any two steps, nothing is
lost and nothing is made twice: `knows` tells for good which tasks are done. TASK is the task's id.
What is damaged goes to damaged/, and holds up nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nlargest
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from protocol.api import SubmissionEnvelope
from protocol.errors import ProofpoolError, Rejected
from protocol.files import sync_folder, write_atomically
from protocol.reasons import Cost, RejectReason
from protocol.telemetry import get_logger
from protocol.wire import Hash32, Receipt, Signed, Submission, Task

Kept = TypeVar("Kept", bound=BaseModel)

ENTRY, FILE, ANSWER = ".json", ".parquet", ".answer.json"
DAMAGED, REFUSED = "damaged", "refused"
"""The folders of what can't be sent, and of what was refused for good, which a forced intake hands in again."""


class Receiver(Protocol):
    """Who takes submissions in: raises Unreachable, or Rejected."""

    def submit(self, envelope: SubmissionEnvelope, submission_id: str, file: bytes) -> Signed[Receipt]: ...


class Entry(BaseModel):
    """A submission that waits for its answer. Its file lies beside it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    task_id: Hash32
    task: Signed[Task]
    submission_id: Hash32
    envelope: SubmissionEnvelope


class Answer(BaseModel):
    """The coordinator's last word: a receipt, or the reason of a refusal that sending again can't change."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    task_id: Hash32
    submission_id: Hash32
    policy_version: int
    counter: int
    submission: Signed[Submission] | None = None
    """What the receipt is for: with it, whoever has this file can hold the coordinator to it."""
    receipt: Signed[Receipt] | None = None
    refusal: RejectReason | None = None
    detail: str = ""


class Outbox:
    """Example: `outbox.put(entry, file)`; later `outbox.send(entry, client)` until it gives an `Answer`."""

    def __init__(self, folder: Path, give_up_seconds: float, keep_refused_seconds: float = math.inf) -> None:
        """An outbox in `folder`; `recover` comes before the first `put` or `send`.

        A submission that is only ever told to retry is given up `give_up_seconds` after its task's deadline. What is
        refused for good goes when one is refused whose deadline is more than `keep_refused_seconds` later.
        """
        self._folder = folder
        self._give_up_seconds = give_up_seconds
        self._keep_refused_seconds = keep_refused_seconds
        self._landed: set[tuple[int, int]] = set()
        folder.mkdir(parents=True, exist_ok=True)

    def recover(self) -> None:
        """Finish a removal that was cut short, and drop files whose entry was never written.

        What is damaged is set aside, so that it holds up nothing else. Only for the process that holds the data folder.
        """
        self._set_damaged_aside()
        for path in self._folder.glob(f"0x*{ANSWER}"):
            self._let_go(path.name.removesuffix(ANSWER), is_refused=_read(Answer, path).refusal is not None)
        for path in self._folder.glob(f"0x*{FILE}"):
            if not path.with_suffix(ENTRY).exists():
                path.unlink()
        for leftover in self._folder.glob(".*"):
            leftover.unlink()
        tasks = [entry.task.message for entry in self.pending()]
        landed = {(task.policy_version, task.counter) for task in tasks}
        self._landed = landed | {(answer.policy_version, answer.counter) for answer in self.answers()}

    def set_aside(self, task_id: str, why: str, suffixes: Sequence[str] = (ENTRY, FILE)) -> None:
        """Move what there is of a task to `damaged/`: it can't be sent, and isn't made again either."""
        (self._folder / DAMAGED).mkdir(exist_ok=True)
        for suffix in suffixes:
            if (path := self._path(task_id, suffix)).exists():
                path.rename(self._folder / DAMAGED / path.name)
        sync_folder(self._folder)
        todo = f"restore it from a backup into {self._folder}, then start again; or leave it: its lease ends by itself"
        get_logger().error("outbox.set_aside", task_id=task_id, why=why, todo=todo)

    def put(self, entry: Entry, file: bytes) -> None:
        """Make a submission durable; a second one for the same task is refused, whatever it holds."""
        if self.knows(entry.task_id):
            raise ProofpoolError("a task has a submission already", entry.task_id, "don't generate it again")
        write_atomically(self._path(entry.task_id, FILE), file)
        write_atomically(self._path(entry.task_id, ENTRY), entry.model_dump_json().encode())
        self._landed.add((entry.task.message.policy_version, entry.task.message.counter))

    def knows(self, task_id: str) -> bool:
        """Whether a submission for this task was made, answered or not."""
        names = (f"{task_id}{ENTRY}", f"{task_id}{ANSWER}")
        return any((folder / name).exists() for folder in (self._folder, self._folder / DAMAGED) for name in names)

    def has_landed(self, policy_version: int, counter: int) -> bool:
        """Whether a submission with this counter was made, under whatever task id. After `recover`."""
        return (policy_version, counter) in self._landed

    def pending(self) -> list[Entry]:
        """Submissions without an answer, those whose task ends first in front."""
        found = [_read(Entry, path) for path in self._entries()]
        return sorted(found, key=lambda entry: (entry.task.message.deadline, entry.task_id))

    @property
    def num_pending(self) -> int:
        """As many as `pending` has, damaged ones too."""
        return sum(1 for _ in self._entries())

    def sendable(self) -> list[Entry]:
        """As `pending`, where what got damaged since `recover` is set aside. Only for one thread of one process."""
        for path in list(self._entries()):
            if why := _damage(Entry, path):
                self.set_aside(path.name.removesuffix(ENTRY), why)
        return self.pending()

    def file(self, entry: Entry) -> bytes:
        return self._path(entry.task_id, FILE).read_bytes()

    def answers(self, newest: int | None = None) -> list[Answer]:
        """All answers ever given, or the `newest` that were written last; in the order of their tasks."""
        paths: Iterable[Path] = self._folder.glob(f"0x*{ANSWER}")
        if newest is not None:
            paths = nlargest(newest, paths, key=lambda path: path.stat().st_mtime_ns)
        found = [_read(Answer, path) for path in paths]
        return sorted(found, key=lambda answer: (answer.policy_version, answer.counter))

    def answer_file(self, task_id: str) -> Path:
        """Where the answer for a task is, once there is one."""
        return self._path(task_id, ANSWER)

    def send(self, entry: Entry, client: Receiver, now: Callable[[], float]) -> Answer:
        """Upload once. Raises Unreachable, or Rejected where sending it again may succeed; then it stays.

        `now` is the chain's time, as deadlines are.
        """
        try:
            receipt = client.submit(entry.envelope, entry.submission_id, self.file(entry))
        except Rejected as refusal:
            if not self._is_final(refusal.reason, entry, now):
                raise
            return self.close(entry, refusal=refusal.reason, detail=str(refusal))
        return self.close(entry, receipt=receipt)

    def close(self, entry: Entry, **outcome: Any) -> Answer:
        """Record the answer and let the file go."""
        task = entry.task.message
        answer = Answer(
            task_id=entry.task_id,
            submission_id=entry.submission_id,
            policy_version=task.policy_version,
            counter=task.counter,
            submission=entry.envelope.submission,
            **outcome,
        )
        write_atomically(self._path(entry.task_id, ANSWER), answer.model_dump_json().encode())
        self._let_go(entry.task_id, is_refused=answer.refusal is not None)
        if answer.refusal is not None:
            self._sweep_refused(task.deadline - self._keep_refused_seconds)
        return answer

    def refused(self) -> list[Entry]:
        """Submissions that were refused for good, as long as they are kept; `refused_file` has their files."""
        return [_read(Entry, path) for path in (self._folder / REFUSED).glob(f"0x*{ENTRY}")]

    def refused_file(self, entry: Entry) -> bytes:
        return (self._folder / REFUSED / f"{entry.task_id}{FILE}").read_bytes()

    def hand_in_again(self, entry: Entry) -> None:
        """Have a refused submission sent once more, by the worker that runs or the next one."""
        write_atomically(self._path(entry.task_id, FILE), self.refused_file(entry))
        write_atomically(self._path(entry.task_id, ENTRY), entry.model_dump_json().encode())
        self._path(entry.task_id, ANSWER).unlink(missing_ok=True)
        sync_folder(self._folder)

    def _sweep_refused(self, before: float) -> None:
        for entry in self.refused():
            if entry.task.message.deadline < before:
                for suffix in (ENTRY, FILE):
                    (self._folder / REFUSED / f"{entry.task_id}{suffix}").unlink(missing_ok=True)

    def _let_go(self, task_id: str, *, is_refused: bool) -> None:
        """What is answered: gone where it was taken in, kept apart where it was refused."""
        kept = self._folder / REFUSED
        if not is_refused:
            return self._remove(task_id)
        kept.mkdir(exist_ok=True)
        for path in (self._path(task_id, FILE), self._path(task_id, ENTRY)):
            if path.exists():
                path.replace(kept / path.name)
        sync_folder(kept)
        sync_folder(self._folder)
        return None

    def _is_final(self, reason: RejectReason, entry: Entry, now: Callable[[], float]) -> bool:
        return reason.cost is not Cost.RETRY or now() > entry.task.message.deadline + self._give_up_seconds

    def _remove(self, task_id: str) -> None:
        # The entry first: a file without an entry is swept, an entry without its file could not be sent.
        self._path(task_id, ENTRY).unlink(missing_ok=True)
        sync_folder(self._folder)
        self._path(task_id, FILE).unlink(missing_ok=True)

    def _set_damaged_aside(self) -> None:
        for path in list(self._folder.glob(f"0x*{ANSWER}")):
            if why := _damage(Answer, path):  # its entry, if that is still there, is sent again
                self.set_aside(path.name.removesuffix(ANSWER), why, (ANSWER,))
        for path in list(self._entries()):
            file = path.with_suffix(FILE)
            if why := _damage(Entry, path) or ("" if file.exists() else f"its file is gone: {file}"):
                self.set_aside(path.name.removesuffix(ENTRY), why)

    def _entries(self) -> Iterator[Path]:
        """Without those whose answer is there already, and which couldn't be removed."""
        for path in self._folder.glob(f"0x*{ENTRY}"):
            if not (path.name.endswith(ANSWER) or self._path(path.name.removesuffix(ENTRY), ANSWER).exists()):
                yield path

    def _path(self, task_id: str, suffix: str) -> Path:
        return self._folder / f"{task_id}{suffix}"


def _read(shape: type[Kept], path: Path) -> Kept:
    try:
        return shape.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ProofpoolError(
            "an outbox entry can't be read", f"{path}: {error.errors()[0]['msg']}", "move it away, then start again"
        ) from error


def _damage(shape: type[Kept], path: Path) -> str:
    """Why it can't be read; empty where it can."""
    try:
        _read(shape, path)
    except ProofpoolError as error:
        return f"{error.what}: {error.why}"
    return ""
