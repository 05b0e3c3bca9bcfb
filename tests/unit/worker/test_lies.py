"""A coordinator that lies costs a worker time: it says so, waits, and goes on as soon as the answers are honest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from protocol.errors import CoordinatorUnreachable, VerificationFailed
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
