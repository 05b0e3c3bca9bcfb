"""The outbox: a kill between any two steps loses nothing and doubles nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from protocol import files
from protocol.api import SubmissionEnvelope
from protocol.canonical import hex0x, sha256
from protocol.errors import CoordinatorUnreachable, ProofpoolError, Rejected
from protocol.reasons import RejectReason
from protocol.signing import Signer, SigningDomain
from protocol.wire import ZERO_HASH, Receipt, Signed, Submission, Task
from worker import outbox as outbox_module
from worker.outbox import Entry, Outbox

FILE = b"PAR1 rollouts PAR1"
DEADLINE = 1_000


class Killed(BaseException):
    """The process ends here: nothing after this line runs."""


class FakeClient:
    """Answers each upload with the next of `answers`: a reason to refuse, an error, or None for a receipt."""

    def __init__(
        self, make_receipt: Callable[[str], Signed[Receipt]], *answers: RejectReason | Exception | None
    ) -> None:
        self._make_receipt = make_receipt
        self._answers = list(answers)
        self.sent: list[tuple[str, bytes]] = []

    def submit(self, envelope: SubmissionEnvelope, submission_id: str, file: bytes) -> Signed[Receipt]:
        self.sent.append((submission_id, file))
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, RejectReason):
            raise Rejected(answer)
        if isinstance(answer, Exception):
            raise answer
        return self._make_receipt(submission_id)


@pytest.fixture
def make_client(make_signer: Callable[[int], Signer], domain: SigningDomain) -> Callable[..., Any]:
    def receipt(submission_id: str) -> Signed[Receipt]:
        message = Receipt(submission_id=submission_id, received_block=1, include_by_epoch=1)
        return Signed[Receipt].by(make_signer(1), message, domain)

    return lambda *answers: FakeClient(receipt, *answers)


@pytest.fixture
def make_entry(make_signer: Callable[[int], Signer], domain: SigningDomain) -> Callable[[int], Entry]:
    def make(counter: int) -> Entry:
        node = make_signer(3)
        common = {"pool_id": 1, "policy_version": 0, "node": node.address, "counter": counter, "rules_hash": ZERO_HASH}
        terms = {"beacon_block": 1, "beacon_hash": ZERO_HASH, "price_wei": 1, "max_units": 9, "deadline": DEADLINE}
        task = Task.model_validate({**common, **terms})
        submission = Submission.model_validate({**common, "content_hash": hex0x(sha256(b"%d" % counter))})
        envelope = SubmissionEnvelope(
            submission=Signed[Submission].by(node, submission, domain),
            file_sha256=hex0x(sha256(FILE)),
            num_bytes=len(FILE),
        )
        return Entry(
            task_id=task.id(domain),
            task=Signed[Task].by(make_signer(1), task, domain),
            submission_id=submission.id(domain),
            envelope=envelope,
        )

    return make


def reopened(tmp_path: Path) -> Outbox:
    outbox = Outbox(tmp_path / "outbox", give_up_seconds=100)
    outbox.recover()
    return outbox


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let `step` changes of the disk happen, and end the process before the next."""
    left = [step]

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return change(*args, **options)

        return run

    monkeypatch.setattr(outbox_module, "write_atomically", counted(files.write_atomically))
    monkeypatch.setattr(Path, "unlink", counted(Path.unlink))


def test_a_put_entry_comes_back_after_a_restart(tmp_path: Path, make_entry: Callable[[int], Entry]) -> None:
    entry = make_entry(0)
    reopened(tmp_path).put(entry, FILE)
    outbox = reopened(tmp_path)
    assert outbox.pending() == [entry]
    assert outbox.file(entry) == FILE
    assert outbox.knows(entry.task_id)
    assert not outbox.knows(make_entry(1).task_id)


def test_a_task_has_one_submission_for_ever(
    tmp_path: Path, make_entry: Callable[[int], Entry], make_client: Any
) -> None:
    entry, outbox = make_entry(0), reopened(tmp_path)
    outbox.put(entry, FILE)
    with pytest.raises(ProofpoolError, match="already"):
        outbox.put(entry, b"other content")
    outbox.send(entry, make_client(), now=lambda: 0)
    with pytest.raises(ProofpoolError, match="already"):
        reopened(tmp_path).put(entry, b"other content")


def test_a_receipt_empties_the_outbox_and_stays(
    tmp_path: Path, make_entry: Callable[[int], Entry], make_client: Any
) -> None:
    entry, outbox = make_entry(0), reopened(tmp_path)
    outbox.put(entry, FILE)
    answer = outbox.send(entry, make_client(), now=lambda: 0)
    assert answer.receipt is not None
    assert answer.receipt.message.submission_id == entry.submission_id
    again = reopened(tmp_path)
    assert again.pending() == []
    assert again.answers() == [answer]
    assert again.knows(entry.task_id)
    assert [path.name for path in (tmp_path / "outbox").iterdir()] == [f"{entry.task_id}.answer.json"]


def test_the_newest_answers_are_those_that_were_written_last(
    tmp_path: Path, make_entry: Callable[[int], Entry], make_client: Any
) -> None:
    outbox = reopened(tmp_path)
    for number, seconds in ((0, 30), (1, 10), (2, 20)):
        entry = make_entry(number)
        outbox.put(entry, FILE)
        outbox.send(entry, make_client(), now=lambda: 0)
        os.utime(outbox.answer_file(entry.task_id), (seconds, seconds))
    assert [answer.counter for answer in outbox.answers()] == [0, 1, 2]
    assert [answer.counter for answer in outbox.answers(newest=2)] == [0, 2]
    assert [answer.counter for answer in outbox.answers(newest=9)] == [0, 1, 2]


@pytest.mark.parametrize(
    "reason", [RejectReason.STORAGE_FULL, RejectReason.SIGNATURE_INVALID, RejectReason.FILE_MISMATCH]
)
def test_what_may_pass_stays(
    tmp_path: Path, make_entry: Callable[[int], Entry], make_client: Any, reason: RejectReason
) -> None:
    entry, outbox, client = make_entry(0), reopened(tmp_path), make_client(reason)
    outbox.put(entry, FILE)
    with pytest.raises(Rejected):
        outbox.send(entry, client, now=lambda: DEADLINE + 50)
    assert outbox.pending() == [entry]
    assert outbox.send(entry, client, now=lambda: DEADLINE + 60).receipt is not None
    assert client.sent == [(entry.submission_id, FILE)] * 2


def test_what_may_pass_is_given_up_long_after_the_deadline(
    tmp_path: Path, make_entry: Callable[[int], Entry], make_client: Any
) -> None:
    entry, outbox = make_entry(0), reopened(tmp_path)
    outbox.put(entry, FILE)
    answer = outbox.send(entry, make_client(RejectReason.STORAGE_FULL), now=lambda: DEADLINE + 101)
    assert answer.refusal is RejectReason.STORAGE_FULL
    assert outbox.pending() == []


@pytest.mark.parametrize("reason", [RejectReason.LEASE_EXPIRED, RejectReason.DUPLICATE, RejectReason.PROOF_MALFORMED])
def test_a_final_refusal_is_kept_and_not_sent_again(
    tmp_path: Path, make_entry: Callable[[int], Entry], make_client: Any, reason: RejectReason
) -> None:
    entry, outbox = make_entry(0), reopened(tmp_path)
    outbox.put(entry, FILE)
    outbox.send(entry, make_client(reason), now=lambda: 0)
    again = reopened(tmp_path)
    assert again.pending() == []
    assert [(answer.refusal, answer.receipt) for answer in again.answers()] == [(reason, None)]


def test_silence_keeps_the_entry(tmp_path: Path, make_entry: Callable[[int], Entry], make_client: Any) -> None:
    entry, outbox = make_entry(0), reopened(tmp_path)
    outbox.put(entry, FILE)
    with pytest.raises(CoordinatorUnreachable):
        outbox.send(entry, make_client(CoordinatorUnreachable("silence")), now=lambda: 10**9)
    assert reopened(tmp_path).pending() == [entry]


@pytest.mark.parametrize("step", range(2))
def test_killed_while_putting_nothing_counts_and_it_can_be_put_again(
    tmp_path: Path, make_entry: Callable[[int], Entry], monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    entry = make_entry(0)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, step)
        reopened(tmp_path).put(entry, FILE)
    outbox = reopened(tmp_path)
    assert not outbox.knows(entry.task_id)
    assert list((tmp_path / "outbox").iterdir()) == []
    outbox.put(entry, FILE)
    assert outbox.pending() == [entry]


@pytest.mark.parametrize("step", range(3))
def test_killed_after_the_upload_it_is_sent_again_or_done(
    tmp_path: Path,
    make_entry: Callable[[int], Entry],
    make_client: Any,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
) -> None:
    entry, client = make_entry(0), make_client()
    outbox = reopened(tmp_path)
    outbox.put(entry, FILE)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, step)
        outbox.send(entry, client, now=lambda: 0)
    again = reopened(tmp_path)
    for left in again.pending():
        again.send(left, client, now=lambda: 0)
    assert set(client.sent) == {(entry.submission_id, FILE)}, "whatever is sent again is the same submission"
    assert [answer.submission_id for answer in again.answers()] == [entry.submission_id]
    assert again.pending() == []
    assert again.knows(entry.task_id)


def test_pending_entries_come_in_the_order_of_their_deadlines(
    tmp_path: Path, make_entry: Callable[[int], Entry]
) -> None:
    outbox = reopened(tmp_path)
    entries = [make_entry(counter) for counter in range(3)]
    for entry in entries:
        outbox.put(entry, FILE)
    assert {entry.task_id for entry in outbox.pending()} == {entry.task_id for entry in entries}


def test_an_entry_that_cant_be_read_is_named(tmp_path: Path) -> None:
    outbox = reopened(tmp_path)
    (tmp_path / "outbox" / f"{ZERO_HASH}.json").write_text("{")
    with pytest.raises(ProofpoolError, match="can't be read"):
        outbox.pending()


def test_an_answer_that_cant_be_read_is_named(tmp_path: Path) -> None:
    outbox = reopened(tmp_path)
    (tmp_path / "outbox" / f"{ZERO_HASH}.answer.json").write_text("")
    with pytest.raises(ProofpoolError, match="can't be read"):
        outbox.answers()


def test_what_is_damaged_is_set_aside_and_holds_nothing_up(
    tmp_path: Path, make_entry: Callable[[int], Entry], make_client: Any
) -> None:
    damaged, lost, whole = (make_entry(counter) for counter in range(3))
    outbox = Outbox(tmp_path, give_up_seconds=100)
    for entry in (damaged, lost, whole):
        outbox.put(entry, FILE)
    (tmp_path / f"{damaged.task_id}.json").write_bytes(b"{")
    (tmp_path / f"{lost.task_id}.parquet").unlink()
    again = Outbox(tmp_path, give_up_seconds=100)
    with capture_logs() as lines:
        again.recover()
    told = {line["task_id"]: line["why"] for line in lines if line["event"] == "outbox.set_aside"}
    assert "can't be read" in told[damaged.task_id] and "its file is gone" in told[lost.task_id] and len(told) == 2
    assert again.pending() == [whole]
    assert again.send(whole, make_client(), lambda: 0.0).receipt is not None
    assert (tmp_path / "damaged" / f"{damaged.task_id}.parquet").read_bytes() == FILE
    for entry in (damaged, lost):  # what was signed once isn't made as another
        with pytest.raises(ProofpoolError, match="already"):
            again.put(entry, FILE)
    Outbox(tmp_path, give_up_seconds=100).recover()
    assert (tmp_path / "damaged" / f"{damaged.task_id}.parquet").exists()


def test_a_damaged_answer_is_asked_for_again_where_its_entry_is_left(
    tmp_path: Path, make_entry: Callable[[int], Entry], make_client: Any
) -> None:
    entry = make_entry(0)
    outbox = Outbox(tmp_path, give_up_seconds=100)
    outbox.put(entry, FILE)
    outbox.answer_file(entry.task_id).write_bytes(b"{")
    outbox.recover()
    assert outbox.pending() == [entry] and outbox.answers() == []
    outbox.send(entry, make_client(), lambda: 0.0)
    outbox.recover()
    assert len(outbox.answers()) == 1 and not outbox.pending()


def test_what_is_refused_is_kept_and_can_be_handed_in_again(
    tmp_path: Path, make_entry: Callable[[int], Entry], make_client: Any
) -> None:
    refused, taken = make_entry(0), make_entry(1)
    outbox = reopened(tmp_path)
    for entry, reason in ((refused, RejectReason.DUPLICATE), (taken, None)):
        outbox.put(entry, FILE)
        outbox.send(entry, make_client(reason), lambda: 0)
    outbox = reopened(tmp_path)
    assert outbox.refused() == [refused] and outbox.refused_file(refused) == FILE
    assert outbox.pending() == []
    outbox.hand_in_again(refused)
    outbox = reopened(tmp_path)
    assert outbox.pending() == [refused] and outbox.file(refused) == FILE
    outbox.send(refused, make_client(), lambda: 0)
    assert [answer.receipt is not None for answer in outbox.answers()] == [True, True]


def test_a_removal_that_was_cut_short_loses_no_refused_file(
    tmp_path: Path, make_entry: Callable[[int], Entry], make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, outbox = make_entry(0), reopened(tmp_path)
    outbox.put(entry, FILE)

    replace = Path.replace

    def killed(path: Path, target: Path) -> Path:
        if target.parent.name == "refused" and path.suffix == ".json":
            raise Killed
        return replace(path, target)

    with monkeypatch.context() as dying, pytest.raises(Killed):
        dying.setattr(Path, "replace", killed)
        outbox.send(entry, make_client(RejectReason.DUPLICATE), lambda: 0)
    outbox = reopened(tmp_path)
    assert outbox.refused() == [entry] and outbox.refused_file(entry) == FILE and outbox.pending() == []


@pytest.mark.parametrize(("days", "is_kept"), [(29, True), (31, False)])
def test_what_is_refused_is_not_kept_for_ever(
    tmp_path: Path, make_entry: Callable[[int], Entry], make_client: Any, days: int, is_kept: bool
) -> None:
    old, new = make_entry(0), make_entry(1)
    task = new.task.message.model_copy(update={"deadline": DEADLINE + days * 86_400})
    new = new.model_copy(update={"task": new.task.model_copy(update={"message": task})})
    outbox = Outbox(tmp_path / "outbox", give_up_seconds=100, keep_refused_seconds=30 * 86_400)
    for entry in (old, new):
        outbox.put(entry, FILE)
        outbox.send(entry, make_client(RejectReason.DUPLICATE), lambda: 0)
    assert (old in outbox.refused()) is is_kept and new in outbox.refused()
