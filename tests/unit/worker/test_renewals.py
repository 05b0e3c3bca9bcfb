"""More time for tasks at hand: asked for in good time, checked, remembered, and never for what isn't at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocol.engines.torch import TorchEngine
from protocol.reasons import RejectReason
from protocol.wire import Signed, Task
from worker.loop import Worker

MakeWorker = Callable[..., Worker]
LEASE_SECONDS = 60


@pytest.fixture
def clock(make_clock: Callable[[], Any]) -> Any:
    return make_clock()


@pytest.fixture
def worker(make_worker: MakeWorker, clock: Any) -> Worker:
    return make_worker(clock=clock)


@pytest.fixture
def task(worker: Worker) -> Signed[Task]:
    """A lease at hand, watched since now."""
    signed_task = worker.next_task()
    worker.renewals.watch(signed_task)
    return signed_task


def at_hand(worker: Worker, task: Signed[Task]) -> frozenset[str]:
    return frozenset({task.message.id(worker.membership.domain)})


def pass_time(pool: Any, clock: Any, seconds: int) -> None:
    clock.time += seconds
    pool.chain.seconds += seconds


def asked(pool: Any) -> int:
    return sum(request.endswith("/renewal") for request in pool.requests)


def test_half_of_the_time_is_left_when_it_asks(worker: Worker, task: Signed[Task], pool: Any, clock: Any) -> None:
    pass_time(pool, clock, LEASE_SECONDS // 2 - 1)
    assert not worker.renewals.are_due(at_hand(worker, task))
    pass_time(pool, clock, 1)
    assert worker.renewals.are_due(at_hand(worker, task))
    worker.renewals.renew()
    assert worker.leases.deadline(task) == task.message.deadline + 60
    assert not worker.renewals.are_due(at_hand(worker, task))
    pass_time(pool, clock, 45)
    assert worker.renewals.are_due(at_hand(worker, task))


def test_refused_it_asks_again_when_half_of_the_rest_is_over(
    worker: Worker, task: Signed[Task], pool: Any, clock: Any
) -> None:
    pool.refusals["tasks"] = [RejectReason.RENEWAL_LIMIT] * 9
    for waited in (30, 15, 8, 4):
        pass_time(pool, clock, waited)
        assert worker.renewals.are_due(at_hand(worker, task)), waited
        worker.renewals.renew()
        assert not worker.renewals.are_due(at_hand(worker, task))
    assert worker.leases.deadline(task) == task.message.deadline
    pass_time(pool, clock, 2)
    assert not worker.renewals.are_due(at_hand(worker, task)), "it is too near to its end"


def test_nobody_asks_for_what_isnt_at_hand_any_more(worker: Worker, task: Signed[Task], pool: Any, clock: Any) -> None:
    pass_time(pool, clock, 30)
    assert not worker.renewals.are_due(frozenset())
    worker.renewals.renew()
    assert asked(pool) == 0


@pytest.mark.parametrize("lie", ["signer", "task", "earlier"])
def test_a_renewal_that_binds_nobody_is_not_believed(
    worker: Worker, task: Signed[Task], pool: Any, clock: Any, lie: str
) -> None:
    pool.receipt_signer = pool.node if lie == "signer" else None
    pool.renewal_for = "0x" + "77" * 32 if lie == "task" else ""
    pool.renewal_seconds = -1 if lie == "earlier" else 60
    pass_time(pool, clock, 30)
    worker.renewals.renew()
    assert asked(pool) == 1
    assert worker.leases.deadline(task) == task.message.deadline


def test_an_outage_is_no_end(worker: Worker, task: Signed[Task], pool: Any, clock: Any) -> None:
    pool.outage = True
    pass_time(pool, clock, 30)
    worker.renewals.renew()
    pool.outage = False
    pass_time(pool, clock, 15)
    assert worker.renewals.are_due(at_hand(worker, task))
    worker.renewals.renew()
    assert worker.leases.deadline(task) == task.message.deadline + 60


def test_after_a_restart_the_later_deadline_holds(
    worker: Worker, task: Signed[Task], pool: Any, clock: Any, make_worker: MakeWorker
) -> None:
    pass_time(pool, clock, 30)
    worker.renewals.renew()
    pass_time(pool, clock, 50)  # past the task's own deadline
    again = make_worker(clock=clock)
    assert again.tasks.unfinished() == task
    again.turn()
    assert len(pool.received) == 1 and len(pool.tasks) == 1
    assert list((again.folder.path / "leases").iterdir()) == []


def test_without_a_renewal_a_restart_drops_it(
    worker: Worker, task: Signed[Task], pool: Any, clock: Any, make_worker: MakeWorker
) -> None:
    pass_time(pool, clock, 80)
    assert make_worker(clock=clock).tasks.unfinished() is None


def test_a_renewal_that_was_lost_with_its_lease_is_found_again(
    worker: Worker, task: Signed[Task], pool: Any, clock: Any, make_worker: MakeWorker
) -> None:
    pass_time(pool, clock, 30)
    worker.renewals.renew()
    worker.leases.forget(task)
    pass_time(pool, clock, 50)
    again = make_worker(clock=clock)
    assert again.tasks.unfinished() is None
    assert again.tasks.lost() == task
    assert again.leases.deadline(task) == task.message.deadline + 60


def test_a_long_task_is_renewed_while_it_generates(make_worker: MakeWorker, pool: Any, clock: Any) -> None:
    class Slow(TorchEngine):
        def step(self) -> Any:
            pass_time(pool, clock, 5)
            return super().step()

    worker = make_worker(clock=clock, engine=Slow())
    worker.turn()
    assert len(pool.received) == 1
    assert asked(pool) >= 2
    assert pool.chain.seconds > pool.tasks[0].message.deadline
    assert list((worker.folder.path / "leases").iterdir()) == []
