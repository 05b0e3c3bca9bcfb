"""Several tasks at once: the next one boards while others fly, of one policy version, and each lands as its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocol.engines.base import Request
from protocol.engines.torch import TorchEngine
from protocol.errors import ProofpoolError
from protocol.reasons import RejectReason
from worker.bounds import Bounds
from worker.flights import Flights
from worker.loop import Worker
from worker.selfcheck import SelfCheckFailed
from worker.work import Work

MakeWorker = Callable[..., Worker]
TWO = Bounds(max_tasks=2)


class Killed(BaseException):
    """The process ends here."""


class Watched(TorchEngine):
    """Notes what boards while others fly, and the steps that it is asked for."""

    def __init__(self, max_batch: int = 64) -> None:
        super().__init__(max_batch)
        self.boarded_beside: list[bool] = []
        self.num_steps = 0

    def add(self, requests: Sequence[Request]) -> None:
        self.boarded_beside.append(self.has_work)
        super().add(requests)

    def step(self) -> Any:
        self.num_steps += 1
        return super().step()


class Careful(Worker):
    """Judges every file of its own, not the first of a version alone."""

    def check_own(self, *arguments: Any) -> None:
        self._checked_version = None
        super().check_own(*arguments)


def counters(pool: Any) -> list[int]:
    return [envelope.submission.message.counter for envelope, _ in pool.received.values()]


def versions(pool: Any) -> list[int]:
    return [envelope.submission.message.policy_version for envelope, _ in pool.received.values()]


def test_the_next_task_boards_while_one_flies_and_each_file_holds(make_worker: MakeWorker, pool: Any) -> None:
    engine = Watched()
    worker = make_worker(Careful, engine=engine, bounds=TWO)
    for _ in range(3):
        worker.turn()
        assert len(worker.flights) == 1 and engine.has_work, "the next one is in the engine already"
    assert counters(pool) == [0, 1, 2]
    assert len(pool.tasks) == 4
    assert engine.boarded_beside == [False, True, True, True]


def test_alone_nothing_is_fetched_ahead(make_worker: MakeWorker, pool: Any) -> None:
    worker = make_worker(engine=(engine := Watched()), bounds=Bounds(max_tasks=1))
    for number in range(2):
        worker.turn()
        assert len(pool.tasks) == number + 1
    assert engine.boarded_beside == [False, False]


def test_no_more_is_fetched_than_the_engine_has_room_for(make_worker: MakeWorker, pool: Any) -> None:
    num_rollouts = pool.rules.group_size * pool.rules.groups_per_task
    worker = make_worker(engine=Watched(max_batch=num_rollouts // 2), bounds=Bounds(max_tasks=8))
    worker.turn()
    assert len(pool.tasks) == 2, "the second half of a task leaves room for one more"
    worker.turn()
    assert counters(pool) == [0, 1]


def test_many_small_tasks_fill_a_large_batch(make_worker: MakeWorker, pool: Any) -> None:
    worker = make_worker(Careful, engine=Watched(), bounds=Bounds(max_tasks=4))
    worker.turn()
    assert len(pool.tasks) >= 4
    for _ in range(3):
        worker.turn()
    assert sorted(counters(pool)) == [0, 1, 2, 3]


def test_a_coordinator_that_leases_one_at_a_time_is_obeyed(make_worker: MakeWorker, pool: Any) -> None:
    pool.most_leases = 1
    worker = make_worker(engine=(engine := Watched()), bounds=TWO)
    for _ in range(2):
        worker.turn()
    assert counters(pool) == [0, 1]
    assert engine.boarded_beside == [False, False]
    asked = [request for request in pool.requests if request == "POST /v1/tasks"]
    assert len(asked) <= 4, "a refusal isn't answered by asking at every step"


@pytest.mark.parametrize("fetched_ahead", [True, False])
def test_new_weights_wait_until_what_flies_has_landed(
    make_worker: MakeWorker, pool: Any, make_model_folder: Callable[[int], Path], fetched_ahead: bool
) -> None:
    worker = make_worker(Careful, engine=Watched(), bounds=TWO)
    if fetched_ahead:
        worker.turn()
    pool.publish(make_model_folder(1), 1)
    worker.weights.follow()
    for _ in range(3):
        worker.turn()
    assert versions(pool) == ([0, 0, 1, 1] if fetched_ahead else [1, 1, 1])


def test_a_task_of_another_version_that_was_left_is_finished_with_its_own(
    make_worker: MakeWorker, pool: Any, make_model_folder: Callable[[int], Path]
) -> None:
    worker = make_worker(bounds=TWO)
    left = worker.next_task()
    pool.publish(make_model_folder(1), 1)
    again = make_worker(Careful, engine=Watched(), bounds=TWO)
    again.load_weights(1)
    again.board(again.open_work(again.tasks.lease(1)))
    for _ in range(3):
        again.turn()
    assert sorted(versions(pool))[:2] == [0, 1]
    assert left.message.counter in counters(pool)


def test_two_versions_cannot_fly_at_once(make_worker: MakeWorker, pool: Any) -> None:
    worker = make_worker()
    work = worker.open_work(worker.next_task())
    task = replace_version(work, 1)
    flights = Flights()
    flights.board(work, work.requests, 0.0)
    with pytest.raises(ProofpoolError, match="two policy versions"):
        flights.board(task, work.requests, 0.0)
    assert len(flights) == 1


def replace_version(work: Work, policy_version: int) -> Work:
    task = work.task.model_copy(update={"policy_version": policy_version})
    return replace(work, signed_task=work.signed_task.model_copy(update={"message": task}))


def test_what_nobody_asked_for_is_a_fault(make_worker: MakeWorker, pool: Any) -> None:
    worker = make_worker()
    work = worker.open_work(worker.next_task())
    worker.engine.add(work.requests)
    with pytest.raises(ProofpoolError, match="nobody asked for"):
        while worker.engine.has_work:
            worker.flights.note(worker.engine.step())


@pytest.mark.parametrize("stage", ["fly", "rollouts_of", "check_own", "land"])
def test_killed_with_two_at_hand_both_are_finished_once(make_worker: MakeWorker, pool: Any, stage: str) -> None:
    worker = make_worker(bounds=TWO)
    worker.turn()

    def die(*arguments: Any) -> Any:
        raise Killed

    setattr(worker, stage, die)
    with pytest.raises(Killed):
        worker.turn()
    again = make_worker(bounds=TWO)
    again.turn()
    again.turn()
    assert counters(pool)[:3] == [0, 1, 2]
    assert len(set(counters(pool))) == len(counters(pool))
    assert not pool.returned


def test_a_stop_finishes_what_flies_and_fetches_no_more(make_worker: MakeWorker, pool: Any) -> None:
    stop = threading.Event()

    class Stopped(Worker):
        def land(self, *arguments: Any) -> None:
            stop.set()
            super().land(*arguments)

    make_worker(Stopped, bounds=TWO).run(stop)
    assert counters(pool) == [0, 1]
    assert len(pool.tasks) == 2
    assert not pool.returned


def test_a_stop_that_may_take_no_time_hands_back_what_flies(make_worker: MakeWorker, pool: Any) -> None:
    stop = threading.Event()

    class Stopped(Worker):
        def land(self, *arguments: Any) -> None:
            stop.set()
            super().land(*arguments)

    worker = make_worker(Stopped, bounds=Bounds(max_tasks=2, drain_seconds=0))
    worker.run(stop)
    assert counters(pool) == [0]
    assert pool.returned == [pool.tasks[1].message.id(pool.domain)]
    assert worker.leases.open() == [] and not worker.engine.has_work


def test_what_isnt_taken_in_at_a_stop_stays_in_the_outbox(make_worker: MakeWorker, pool: Any) -> None:
    stop = threading.Event()

    class Stopped(Worker):
        def land(self, *arguments: Any) -> None:
            stop.set()
            pool.outage = True
            super().land(*arguments)

    worker = make_worker(Stopped)
    worker.run(stop)
    assert [entry.task.message.counter for entry in worker.outbox.pending()] == [0]
    pool.outage = False
    make_worker().turn()
    assert counters(pool) == [0, 1]


@pytest.mark.parametrize("reason", [RejectReason.NO_DEMAND, RejectReason.LEASE_LIMIT, RejectReason.POOL_PAUSED])
def test_a_refusal_ahead_costs_the_task_at_hand_nothing(
    make_worker: MakeWorker, pool: Any, reason: RejectReason
) -> None:
    worker = make_worker(bounds=TWO)
    worker.board(worker.open_work(worker.next_task()))
    pool.refusals["tasks"] = [reason]
    worker.turn()
    assert counters(pool) == [0]


def test_a_fault_ahead_ends_the_loop(make_worker: MakeWorker, pool: Any) -> None:
    class Broken(Worker):
        def _next_of_loaded(self) -> Work | None:
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        make_worker(Broken, bounds=TWO).run(threading.Event())


def test_own_faults_end_the_loop_with_others_in_the_engine(make_worker: MakeWorker, pool: Any) -> None:
    class Generous(Worker):
        def rewards(self, work: Work, completions: Any) -> list[float]:
            return [1.0 for _ in completions]

    with pytest.raises(SelfCheckFailed, match="rewards"):
        make_worker(Generous, bounds=TWO).run(threading.Event())
    assert not pool.received


def test_requests_that_an_engine_loses_are_a_fault(make_worker: MakeWorker, pool: Any) -> None:
    worker = make_worker()
    worker.board(worker.open_work(worker.next_task()))
    worker.engine.abort()
    with pytest.raises(ProofpoolError, match="lost requests"):
        worker.turn()
