"""`proofpool worker verify`: own submissions, judged again from their bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protocol.checks.report import print_report
from protocol.errors import UsageError
from protocol.reasons import RejectReason
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
