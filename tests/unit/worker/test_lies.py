"""A coordinator that lies costs a worker time: it says so, waits, and goes on as soon as the answers are honest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from protocol.errors import CoordinatorUnreachable, NotEligible, VerificationFailed
from protocol.reasons import RejectReason
from protocol.wire import Renewal, Signed, Task
from worker.bounds import Bounds
from worker.loop import Worker

MakeWorker = Callable[..., Worker]
Lie = Callable[[Any, httpx.Request], httpx.Response]


def other_rules(pool: Any, request: httpx.Request) -> httpx.Response:
    changed = pool.rules.model_copy(update={"group_size": 10**9})
    return httpx.Response(200, content=changed.model_dump_json().encode())


def nothing(pool: Any, request: httpx.Request) -> httpx.Response:
    answer: httpx.Response = pool._not_found()
    return answer


@pytest.mark.parametrize("lie", [other_rules, nothing])
@pytest.mark.parametrize("path", ["rules", "tasks"])
def test_a_lie_is_waited_out(
    make_worker: MakeWorker,
    pool: Any,
    make_clock: Callable[[int], Any],
    monkeypatch: pytest.MonkeyPatch,
    lie: Lie,
    path: str,
) -> None:
    worker = make_worker(clock=(clock := make_clock(3)))
    with monkeypatch.context() as lying:
        lying.setattr(pool, f"_{path}", lambda request, *rest: lie(pool, request))
        worker.run(threading.Event())
    assert len(clock.waits) == 3 and all(wait > 0 for wait in clock.waits)
    assert not pool.received
    worker.turn()
    assert len(pool.received) == 1


def test_an_upload_that_is_said_not_to_exist_stays(
    make_worker: MakeWorker, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker()
    with monkeypatch.context() as lying:
        lying.setattr(pool, "_submissions", lambda request, *rest: pool._not_found())
        worker.turn()
    assert len(worker.outbox.pending()) == 1
    make_worker().turn()
    assert len(pool.received) == 2


def leased_with(pool: Any, **changes: int) -> Signed[Task]:
    """The last lease again, signed with these changes."""
    task = pool.tasks[-1].message.model_copy(update=changes)
    return Signed[Task].by(pool.coordinator, task, pool.domain)


@pytest.mark.parametrize("changes", [{}, {"deadline": 1_000_099}], ids=["the same", "with another deadline"])
def test_a_task_at_hand_is_not_begun_a_second_time(
    make_worker: MakeWorker, pool: Any, monkeypatch: pytest.MonkeyPatch, changes: dict[str, int]
) -> None:
    worker = make_worker(bounds=Bounds(max_tasks=2))
    first = worker.next_task()
    again = leased_with(pool, **changes)
    with monkeypatch.context() as lying:
        lying.setattr(worker.membership.coordinator, "lease", lambda version: again)
        with pytest.raises(VerificationFailed, match="at hand"):
            worker.tasks.lease(0)
    assert worker.leases.open() == [first]
    assert worker.tasks.lease(0).message.counter == 1


def test_a_lease_repeated_while_it_is_in_the_engine_ends_nothing(
    make_worker: MakeWorker, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker(bounds=Bounds(max_tasks=2))
    honest = pool._tasks

    def repeated(request: httpx.Request, *rest: str) -> httpx.Response:
        if request.method == "POST" and not rest and pool.tasks:
            return httpx.Response(200, content=pool.tasks[-1].model_dump_json().encode())
        answer: httpx.Response = honest(request, *rest)
        return answer

    monkeypatch.setattr(pool, "_tasks", repeated)
    worker.turn()
    assert len(pool.received) == 1


@pytest.mark.parametrize("deadline", [0, 1_000_000])
def test_a_lease_that_is_over_is_not_worked_on(
    make_worker: MakeWorker, pool: Any, monkeypatch: pytest.MonkeyPatch, deadline: int
) -> None:
    worker = make_worker()
    worker.tasks.lease(0)
    over = leased_with(pool, counter=1, deadline=deadline)
    with monkeypatch.context() as lying:
        lying.setattr(worker.membership.coordinator, "lease", lambda version: over)
        with pytest.raises(VerificationFailed, match="is over"):
            worker.tasks.lease(0)
    assert worker.tasks.lease(0).message.deadline > pool.chain.seconds


@pytest.mark.parametrize(("seconds", "deadline"), [(-50, 1_000_060), (60, 1_000_120)])
def test_a_renewal_never_shortens_a_lost_lease(make_worker: MakeWorker, pool: Any, seconds: int, deadline: int) -> None:
    pool.loses_leases = True
    worker = make_worker()
    with pytest.raises(CoordinatorUnreachable):
        worker.tasks.lease(0)
    pool.loses_leases = False
    lost = pool.tasks[0].message
    task_id = lost.id(pool.domain)
    renewal = Renewal(task_id=task_id, deadline=lost.deadline + seconds)
    pool.renewals[task_id] = Signed[Renewal].by(pool.coordinator, renewal, pool.domain)
    found = worker.tasks.lost()
    assert found is not None
    assert worker.leases.deadline(found) == deadline


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("refused", [False, True])
def test_a_counter_that_has_landed_is_not_worked_on_under_another_id(
    make_worker: MakeWorker, pool: Any, monkeypatch: pytest.MonkeyPatch, restarts: bool, refused: bool
) -> None:
    worker = make_worker()
    if refused:
        pool.refusals["submissions"] = [RejectReason.DUPLICATE]
    worker.turn()
    assert worker.outbox.answers()[0].counter == 0
    again = leased_with(pool, counter=0, deadline=1_000_099)
    worker = make_worker() if restarts else worker
    with monkeypatch.context() as lying:
        lying.setattr(worker.membership.coordinator, "lease", lambda version: again)
        with pytest.raises(NotEligible, match="counter"):
            worker.tasks.lease(0)
    assert again not in worker.leases.open()
    assert worker.tasks.lease(0).message.counter == len(pool.tasks) - 1


def test_one_bad_task_among_the_open_ones_stops_no_other(
    make_worker: MakeWorker, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.loses_leases = True
    for _ in range(2):
        with pytest.raises(CoordinatorUnreachable):
            make_worker().tasks.lease(0)
    pool.loses_leases = False
    bad, good = leased_with(pool, price_wei=1), pool.tasks[1]
    worker = make_worker()
    monkeypatch.setattr(pool, "open_tasks", lambda: [bad, good])
    with capture_logs() as lines:
        assert worker.tasks.lost() == good
        worker.tasks._may_have_lost = True
        assert worker.tasks.lost(at_hand=[good.message.id(pool.domain)]) is None
    told = [line for line in lines if line["event"] == "lease.passed_over"]
    assert len(told) == 1 and "price" in told[0]["why"]
    assert worker.leases.open() == [good]


def test_a_refused_return_stops_no_other(make_worker: MakeWorker, pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = make_worker(bounds=Bounds(max_tasks=2))
    kept, returned = worker.tasks.lease(0), worker.tasks.lease(0)
    pool.refusals["tasks"] = [RejectReason.POOL_PAUSED]
    with capture_logs() as lines:
        worker.tasks.hand_back()
    assert pool.returned == [returned.message.id(pool.domain)]
    assert worker.leases.open() == [kept]
    assert [(line["event"], line["counter"]) for line in lines] == [("task.kept", 0), ("task.returned", 1)]
    worker.tasks.hand_back()
    assert not worker.leases.open() and len(pool.returned) == 2
