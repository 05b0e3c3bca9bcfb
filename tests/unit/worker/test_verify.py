"""`proofpool worker verify`: own submissions, judged again from their bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocol.checks.report_table import print_report
from protocol.cli import run
from protocol.errors import UsageError
from protocol.reasons import RejectReason
from protocol.rollouts import Rollout, read_rollouts, write_rollouts
from protocol.wire import Signed, Task, WeightsRelease
from tests.documents import fitting
from tests.unit.worker.flying import rollouts_of
from worker import verify
from worker.config import WorkerConfig
from worker.loop import Worker
from worker.verify import reports_of


@pytest.fixture(autouse=True)
def joined(pool: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(verify, "join", lambda config, clock: pool.membership())
    yield


def test_an_honest_submission_holds(
    make_worker: Callable[..., Worker],
    pool: Any,
    make_config: Callable[..., WorkerConfig],
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_worker().turn()
    (submission_id,) = pool.received
    (report,) = reports_of(make_config(), submission_id)
    assert report.holds
    assert report.submission_id == submission_id
    print_report(report)
    assert "✓" in capsys.readouterr().out


def test_a_forged_one_doesnt(
    make_worker: Callable[..., Worker], pool: Any, make_config: Callable[..., WorkerConfig]
) -> None:
    class Forger(Worker):
        def rewards(self, *arguments: Any) -> list[float]:
            return [9.0] * 8

        def check_own(self, *arguments: Any) -> None:
            return

    make_worker(Forger).turn()
    (report,) = reports_of(make_config(), next(iter(pool.received)))
    assert not report.holds
    assert report.checks[-1].reason == RejectReason.REWARD_MISMATCH


def test_the_outbox_is_judged_where_nothing_is_named(
    make_worker: Callable[..., Worker], pool: Any, make_config: Callable[..., WorkerConfig]
) -> None:
    pool.refusals["submissions"] = [RejectReason.STORAGE_FULL]
    worker = make_worker()
    worker.turn()
    (entry,) = worker.outbox.pending()
    (report,) = reports_of(make_config(), None)
    assert report.holds
    assert report.submission_id == entry.submission_id
    assert worker.outbox.pending() == [entry]


def test_what_was_refused_for_good_is_judged_by_its_id(
    make_worker: Callable[..., Worker], pool: Any, make_config: Callable[..., WorkerConfig]
) -> None:
    pool.refusals["submissions"] = [RejectReason.DUPLICATE]
    worker = make_worker()
    worker.turn()
    (entry,) = worker.outbox.refused()
    (report,) = reports_of(make_config(), entry.submission_id)
    assert report.holds and report.submission_id == entry.submission_id and not pool.received
    worker.outbox.hand_in_again(entry)
    (answer,) = worker.uploads.flush()
    assert answer.receipt is not None and list(pool.received) == [entry.submission_id]


def test_an_empty_outbox_is_a_usage_error(
    make_worker: Callable[..., Worker], make_config: Callable[..., WorkerConfig]
) -> None:
    make_worker()
    with pytest.raises(UsageError, match="nothing to verify"):
        reports_of(make_config(), None)


def test_a_file_is_judged_before_it_is_sent(
    make_worker: Callable[..., Worker], pool: Any, make_config: Callable[..., WorkerConfig], tmp_path: Path
) -> None:
    """Whose task it is for, the file says; the lease lies in the data folder."""
    worker = make_worker()
    task = worker.next_task()
    work = worker.open_work(task)
    file = tmp_path / "rollouts.parquet"
    file.write_bytes(write_rollouts(work.header, rollouts_of(worker, work)))
    (report,) = reports_of(make_config(), str(file))
    assert report.holds and report.submission_id is None and report.num_audited == work.num_rollouts
    worker.leases.forget(task)
    (asked,) = reports_of(make_config(), str(file))
    assert asked.holds, "the coordinator knows the task too"
    pool.tasks.clear()
    with pytest.raises(UsageError, match="nobody knows the file's task"):
        reports_of(make_config(), str(file))


def test_a_copy_of_what_was_sent_is_held_against_what_was_signed(
    make_worker: Callable[..., Worker], pool: Any, make_config: Callable[..., WorkerConfig], tmp_path: Path
) -> None:
    """Damage on the way looks like damage, not like a lie."""
    make_worker().turn()
    (submission_id,) = pool.received
    envelope, rollouts = pool.received[submission_id]
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(pool.files[submission_id])
    (report,) = reports_of(make_config(), str(copy))
    assert report.holds and report.submission_id == submission_id
    assert report.content_hash == report.signed_content_hash == envelope.submission.message.content_hash
    header, _ = read_rollouts(pool.files[submission_id], max_rows=100, max_tokens=100)
    copy.write_bytes(write_rollouts(header, [replace(row, proofs=bytes(258)) for row in rollouts]))
    (report,) = reports_of(make_config(), str(copy))
    assert (report.outcome, report.reason) == ("drop", "file_mismatch")
    assert report.checks[-1].detail.startswith("damaged or edited")


@pytest.mark.usefixtures("asked")
def test_a_coordinators_address_is_all_that_a_file_takes(
    make_worker: Callable[..., Worker], pool: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Task, rules, weights, and what was signed: each by what the file or the coordinator names."""
    worker = make_worker()
    work = worker.open_work(worker.next_task())
    file = tmp_path / "rollouts.parquet"
    file.write_bytes(write_rollouts(work.header, rollouts_of(worker, work)))
    capsys.readouterr()

    def verified(subject: str) -> tuple[int, dict[str, Any]]:
        code = run(["worker", "verify", subject, "--coordinator", "http://pool", "--json"])
        (found,) = fitting("worker verify", capsys.readouterr().out)
        return code, found

    code, document = verified(str(file))
    assert (code, document["outcome"], document["signed_content_hash"]) == (0, "accept", None)
    assert any("shard" in request for request in pool.requests), "the weights came from the pool's servers"
    worker.turn()
    (submission_id,) = pool.received
    capsys.readouterr()
    for subject in (str(file), submission_id):
        code, document = verified(subject)
        assert (code, document["submission_id"]) == (0, submission_id)
        assert document["signed_content_hash"] == document["content_hash"]


@pytest.mark.usefixtures("asked")
def test_a_damaged_copy_is_told_from_a_lie(
    make_worker: Callable[..., Worker], pool: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_worker().turn()
    (submission_id,) = pool.received
    sent, copy = pool.files[submission_id], tmp_path / "copy.parquet"
    capsys.readouterr()
    outcomes = set()
    for place in range(4, len(sent), len(sent) // 40):
        copy.write_bytes(sent[:place] + bytes([sent[place] ^ 1]) + sent[place + 1 :])
        code = run(["worker", "verify", str(copy), "--coordinator", "http://pool", "--json"])
        if code == 2:  # it names no task any more
            assert "no such task" in capsys.readouterr().err
            continue
        (document,) = json.loads(capsys.readouterr().out)
        outcomes.add(document["reason"])
        if document["reason"] is None:
            assert document["content_hash"] == document["signed_content_hash"], "nothing that counts was hit"
        if document["reason"] == "file_mismatch":
            assert "damaged" in document["checks"][-1]["detail"]
    assert "file_mismatch" in outcomes <= {None, "schema_invalid", "file_mismatch"}


@pytest.mark.usefixtures("asked")
def test_what_the_coordinator_serves_is_checked(
    make_worker: Callable[..., Worker], pool: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], make_signer: Any
) -> None:
    worker = make_worker()
    work = worker.open_work(worker.next_task())
    file = tmp_path / "rollouts.parquet"
    file.write_bytes(write_rollouts(work.header, rollouts_of(worker, work)))
    arguments = ["worker", "verify", str(file), "--coordinator", "http://pool"]
    stranger, (task,), release = make_signer(99), pool.tasks, pool.releases[0]
    pool.tasks = [Signed[Task].by(stranger, task.message, pool.domain)]
    assert run(arguments) == 3
    pool.tasks, pool.releases[0] = [task], Signed[WeightsRelease].by(stranger, release.message, pool.domain)
    assert run(arguments) == 3
    assert "error: " in capsys.readouterr().err
    pool.tasks.clear()
    assert run(arguments) == 2
    assert "no such task" in capsys.readouterr().err


def test_without_configuration_and_coordinator_it_says_what_to_hand_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["worker", "verify", str(tmp_path / "file"), "--model", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "there is no --task, --rules, --pool" in said and "--coordinator URL" in said
    assert run(["worker", "verify", "0x" + "12" * 32]) == 2


def test_a_file_with_all_that_it_takes_needs_no_configuration(
    make_worker: Callable[..., Worker],
    pool: Any,
    model_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    worker = make_worker()
    work = worker.open_work(worker.next_task())
    rows = rollouts_of(worker, work)
    (tmp_path / "task.json").write_text(work.signed_task.model_dump_json())
    (tmp_path / "rules.json").write_text(pool.rules.model_dump_json())
    (tmp_path / "pool.json").write_text(pool.membership().coordinator.pool().model_dump_json())

    def verify(rollouts: list[Rollout]) -> int:
        (tmp_path / "rollouts.parquet").write_bytes(write_rollouts(work.header, rollouts))
        flags = [f"--{name}={tmp_path / name}.json" for name in ("task", "rules", "pool")]
        return run(
            ["worker", "verify", str(tmp_path / "rollouts.parquet"), *flags, f"--model={model_folder}", "--json"]
        )

    capsys.readouterr()
    assert verify(rows) == 0
    assert json.loads(capsys.readouterr().out)[0]["outcome"] == "accept"
    assert verify([replace(row, output_logprobs=row.output_logprobs - 9) for row in rows]) == 3
    (document,) = json.loads(capsys.readouterr().out)
    assert document["reason"] == "logprob_mismatch" and document["first_token"]["rollout"] == 0


def test_a_file_of_which_nothing_is_known_is_a_usage_error(
    make_worker: Callable[..., Worker], make_config: Callable[..., WorkerConfig], tmp_path: Path
) -> None:
    make_worker()
    (tmp_path / "noise").write_bytes(b"noise")
    for subject in ("no such file", str(tmp_path / "noise")):
        with pytest.raises(UsageError):
            reports_of(make_config(), subject)
