"""The outbox under any sequence of puts, uploads, kills and full disks, each at any change of the disk.

A kill leaves what is on the disk as it is: nothing that cleans up runs after it. A file that is being written may be
there in part.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.api import SubmissionEnvelope
from protocol.canonical import hex0x, sha256
from protocol.errors import CoordinatorUnreachable, ProofpoolError, Rejected
from protocol.reasons import RejectReason
from protocol.signing import Signer, SigningDomain
from protocol.wire import ZERO_HASH, Receipt, Signed, Submission, Task
from worker.outbox import Answer, Entry, Outbox

MAX_STEPS = 14
"""More changes of the disk than any one action makes."""
DEADLINE = 1_000


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def disk_that_fails(step: int, error: BaseException, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """After `step` changes `error` comes at the next one: a kill at all that follow too, a full disk once."""
    left = [step]

    def fails() -> bool:
        left[0] -= 1
        return left[0] < 0 if isinstance(error, Killed) else left[0] == -1

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            if fails():
                raise error
            return change(*args, **options)

        return run

    def torn(descriptor: int) -> None:
        """What isn't durable yet may be there in part."""
        if fails():
            found = os.fstat(descriptor)
            if isinstance(error, Killed) and stat.S_ISREG(found.st_mode):
                os.ftruncate(descriptor, found.st_size // 2)
            raise error
        original_fsync(descriptor)

    original_fsync = os.fsync
    with patch.context() as patched:
        patched.setattr(tempfile, "mkstemp", counted(tempfile.mkstemp))
        patched.setattr(os, "fsync", torn)
        patched.setattr(Path, "replace", counted(Path.replace))
        patched.setattr(Path, "unlink", counted(Path.unlink))
        yield


@dataclass
class World:
    """One node's outbox, the coordinator, and what must be true of both."""

    folder: Path
    node: Signer
    coordinator: Signer
    domain: SigningDomain
    answers: list[str] = field(default_factory=list)
    sent: dict[str, set[bytes]] = field(default_factory=dict)
    closed: dict[str, Answer] = field(default_factory=dict)
    may_be_made: set[int] = field(default_factory=set)
    """Counters whose put was cut off: they may be there or not, whole in any case."""
    made: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.outbox = Outbox(self.folder, give_up_seconds=100)
        self.outbox.recover()

    def file(self, counter: int) -> bytes:
        return b"PAR1 rollouts %d PAR1" % counter * 20

    def entry(self, counter: int) -> Entry:
        common = {"pool_id": 1, "policy_version": 0, "node": self.node.address, "counter": counter}
        terms = {"beacon_block": 1, "beacon_hash": ZERO_HASH, "price_wei": 1, "max_units": 9, "deadline": DEADLINE}
        task = Task.model_validate({**common, **terms, "rules_hash": ZERO_HASH})
        digest = hex0x(sha256(self.file(counter)))
        submission = Submission.model_validate({**common, "rules_hash": ZERO_HASH, "content_hash": digest})
        envelope = SubmissionEnvelope(
            submission=Signed[Submission].by(self.node, submission, self.domain),
            file_sha256=digest,
            num_bytes=len(self.file(counter)),
        )
        return Entry(
            task_id=task.id(self.domain),
            task=Signed[Task].by(self.coordinator, task, self.domain),
            submission_id=submission.id(self.domain),
            envelope=envelope,
        )

    def submit(self, envelope: SubmissionEnvelope, submission_id: str, file: bytes) -> Signed[Receipt]:
        """The coordinator, who answers as the test says."""
        self.sent.setdefault(submission_id, set()).add(file)
        how = self.answers.pop(0) if self.answers else "receipt"
        if how == "silence":
            raise CoordinatorUnreachable("silence")
        if how != "receipt":
            raise Rejected(RejectReason(how))
        message = Receipt(submission_id=submission_id, received_block=1, include_by_epoch=1)
        return Signed[Receipt].by(self.coordinator, message, self.domain)

    def put(self, counter: int) -> None:
        self.may_be_made.add(counter)
        try:
            self.outbox.put(self.entry(counter), self.file(counter))
        except ProofpoolError:
            assert self.outbox.knows(self.entry(counter).task_id)
        self.made.add(counter)

    def send(self) -> None:
        for entry in self.outbox.pending():
            try:
                self.outbox.send(entry, self, now=lambda: 0)
            except (CoordinatorUnreachable, Rejected):
                continue

    def check(self, after_start: bool) -> None:
        """What was made is there once and whole; what was closed stays as it was."""
        pending = {entry.envelope.submission.message.counter: entry for entry in self.outbox.pending()}
        closed = {answer.counter: answer for answer in self.outbox.answers()}
        assert self.made <= set(pending) | set(closed) <= self.made | self.may_be_made
        for counter, entry in pending.items():
            assert entry == self.entry(counter)
            assert self.outbox.file(entry) == self.file(counter)
        for answer in closed.values():
            assert self.closed.setdefault(answer.task_id, answer) == answer
        assert {answer.task_id for answer in closed.values()} == set(self.closed), "no answer is forgotten"
        if after_start:
            assert not set(pending) & set(closed), "what is answered isn't sent again"
            refused = {entry.task_id: self.outbox.refused_file(entry) for entry in self.outbox.refused()}
            counters = {answer.task_id: answer.counter for answer in closed.values() if answer.refusal is not None}
            assert refused == {task_id: self.file(counter) for task_id, counter in counters.items()}
            names = {path.name for path in self.folder.iterdir()} - {"refused"}
            kept = {f"{entry.task_id}{end}" for entry in pending.values() for end in (".json", ".parquet")}
            assert names == kept | {f"{task_id}.answer.json" for task_id in self.closed}


ANSWERS = st.lists(st.sampled_from(["receipt", "silence", "storage_full", "lease_expired"]), max_size=3)
FAILURES = st.none() | st.tuples(st.sampled_from(["kill", "full"]), st.integers(0, MAX_STEPS))
ACTIONS = st.lists(
    st.tuples(
        st.one_of(st.tuples(st.just("put"), st.integers(0, 3)), st.tuples(st.just("send"), ANSWERS), st.just("start")),
        FAILURES,
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(ACTIONS)
def test_whatever_fails_when_each_submission_is_there_once_and_whole(
    tmp_path_factory: Any, make_signer: Callable[[int], Signer], domain: SigningDomain, actions: Any
) -> None:
    world = World(tmp_path_factory.mktemp("outbox"), make_signer(3), make_signer(1), domain)
    for action, failure in actions:
        is_killed = not act(world, action, failure)
        if is_killed or action == "start":
            world.start()
        world.check(after_start=is_killed or action == "start")
    world.answers.clear()
    world.start()
    world.send()
    world.check(after_start=False)
    assert world.outbox.pending() == []
    assert all(len(files) == 1 for files in world.sent.values()), "what is sent again is the same"


def act(world: World, action: Any, failure: tuple[str, int] | None) -> bool:
    """Do it, on a disk that may fail on the way; whether the process lives on."""

    def run() -> None:
        if action == "start":
            world.start()
        elif action[0] == "put":
            world.put(action[1])
        else:
            world.answers = list(action[1])
            world.send()

    if failure is None:
        run()
        return True
    kind, step = failure
    error = Killed() if kind == "kill" else OSError(28, "No space left on device")
    try:
        with disk_that_fails(step, error, pytest.MonkeyPatch()):
            run()
    except Killed:
        return False
    except OSError as full:
        assert full.errno == 28
        return action != "start"  # a process that can't start ends
    return True
