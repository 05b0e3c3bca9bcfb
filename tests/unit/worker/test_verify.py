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
from protocol.rollouts import Rollout, write_rollouts
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
    file.write_bytes(write_rollouts(work.header, worker.rollouts_of(work)))
    (report,) = reports_of(make_config(), str(file))
    assert report.holds and report.submission_id is None and report.num_audited == work.num_rollouts
    worker.leases.forget(task)
    with pytest.raises(UsageError, match="no task on this machine"):
        reports_of(make_config(), str(file))


def test_a_file_with_all_that_it_takes_needs_no_configuration(
    make_worker: Callable[..., Worker],
    pool: Any,
    model_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    worker = make_worker()
    work = worker.open_work(worker.next_task())
    rows = worker.rollouts_of(work)
    (tmp_path / "task.json").write_text(work.signed_task.model_dump_json())
    (tmp_path / "rules.json").write_text(pool.rules.model_dump_json())

    def verify(rollouts: list[Rollout]) -> int:
        (tmp_path / "rollouts.parquet").write_bytes(write_rollouts(work.header, rollouts))
        flags = [f"--{name}={tmp_path / name}.json" for name in ("task", "rules")]
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
