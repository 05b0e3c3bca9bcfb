"""The process around the loop: joining with patience, working beside the follower of weights, ending well."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from protocol.clock import SystemClock
from protocol.errors import ConfigError, CoordinatorUnreachable, NotFound, ProofpoolError, Rejected
from protocol.reasons import RejectReason
from protocol.signals import stop_on_signals
from worker import joining, process
from worker.config import WorkerConfig
from worker.folder import contents
from worker.loop import Worker
from worker.process import WorkerProcess


class StopsAfterTwo(Worker):
    """Ends its process once at least two submissions are in."""

    stop: threading.Event

    def turn(self) -> None:
        super().turn()
        if len(self.outbox.answers()) >= 2:
            self.stop.set()


def work(pool: Any, config: WorkerConfig, shape: type[StopsAfterTwo]) -> None:
    shape.stop = threading.Event()
    with httpx.Client(transport=httpx.MockTransport(pool.handle)) as http:
        WorkerProcess(config, shape, SystemClock(), shape.stop).work(pool.membership(), http)


def test_weights_are_followed_beside_the_work(pool: Any, make_config: Callable[..., WorkerConfig]) -> None:
    config = make_config()
    work(pool, config, StopsAfterTwo)
    counters = [e.submission.message.counter for e, _ in pool.received.values()]
    assert counters == list(range(len(counters))) and len(counters) >= 2
    assert contents(config.data_dir).policy_versions == (0,)
    assert (config.data_dir / "config.json").exists()
    work(pool, config, StopsAfterTwo)  # the folder is free again


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_a_jump_of_the_machines_clock_holds_no_upload_up_and_gives_none_up(
    pool: Any, make_config: Callable[..., WorkerConfig], monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    real = time.time

    def counters() -> list[int]:
        return [envelope.submission.message.counter for envelope, _ in pool.received.values()]

    class Jumped(StopsAfterTwo):
        num_turns = 0

        def turn(self) -> None:
            Worker.turn(self)
            self.num_turns += 1
            if self.num_turns == 1:
                self._sending.finish()  # refused by now, and postponed
                monkeypatch.setattr(time, "time", lambda: real() + jump)
                pool.refusals["submissions"] = [RejectReason.SIGNATURE_INVALID]
            if 0 in counters() or self.num_turns == 2000:
                self.stop.set()

    pool.chain.seconds = int(real())
    pool.refusals["submissions"] = [RejectReason.STORAGE_FULL]
    work(pool, make_config(retry_first_seconds=0.5, retry_most_seconds=0.5), Jumped)
    assert 0 in counters()
    assert not pool.refusals["submissions"]


def test_a_lease_that_wont_be_worked_on_is_returned(pool: Any, make_config: Callable[..., WorkerConfig]) -> None:
    class Idle(StopsAfterTwo):
        def open_work(self, signed_task: Any) -> Any:
            self.stop.set()
            raise CoordinatorUnreachable("gone")

    config = make_config()
    work(pool, config, Idle)
    assert pool.returned == [pool.tasks[0].message.id(pool.domain)]
    assert contents(config.data_dir).num_leases == 0


def test_a_lease_that_cant_be_returned_stays_for_a_restart(pool: Any, make_config: Callable[..., WorkerConfig]) -> None:
    class Cut(StopsAfterTwo):
        def open_work(self, signed_task: Any) -> Any:
            self.stop.set()
            pool.outage = True
            raise CoordinatorUnreachable("gone")

    config = make_config()
    work(pool, config, Cut)
    assert contents(config.data_dir).num_leases == 1
    pool.outage = False
    work(pool, config, StopsAfterTwo)
    counters = [e.submission.message.counter for e, _ in pool.received.values()]
    assert counters == list(range(len(counters))) and len(counters) >= 2, "the one that stayed comes first"


def test_a_disk_that_is_full_at_the_start_is_waited_out(
    pool: Any, make_config: Callable[..., WorkerConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    written, failures = process.write_resolved, [OSError(28, "No space left on device")] * 2

    def full_at_first(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        written(*arguments)

    monkeypatch.setattr(process, "write_resolved", full_at_first)
    work(pool, make_config(), StopsAfterTwo)
    assert not failures and len(pool.received) >= 2


def test_a_disk_that_fails_otherwise_ends_the_process(
    pool: Any, make_config: Callable[..., WorkerConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(process, "write_resolved", broken)
    with pytest.raises(OSError, match="Input/output"):
        work(pool, make_config(), StopsAfterTwo)


def test_a_fault_of_the_follower_ends_the_process(
    pool: Any, make_config: Callable[..., WorkerConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("worker.weights.Weights.follow", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        work(pool, make_config(), StopsAfterTwo)


@pytest.mark.parametrize(
    "error",
    [CoordinatorUnreachable("not up yet"), Rejected(RejectReason.RATE_LIMITED, "too many"), NotFound("no pool yet")],
)
def test_joining_waits_for_whoever_is_down_or_refuses(
    pool: Any, make_config: Callable[..., WorkerConfig], monkeypatch: pytest.MonkeyPatch, error: ProofpoolError
) -> None:
    attempts = []

    def join(*arguments: Any) -> Any:
        attempts.append(1)
        if len(attempts) < 3:
            raise error
        return pool.membership()

    monkeypatch.setattr(process, "join", join)
    membership = WorkerProcess(make_config(), Worker, SystemClock(), threading.Event()).join()
    assert membership is not None
    assert len(attempts) == 3


def test_a_stop_ends_the_waiting(make_config: Callable[..., WorkerConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()

    def join(*arguments: Any) -> Any:
        stop.set()
        raise CoordinatorUnreachable("never up")

    monkeypatch.setattr(process, "join", join)
    WorkerProcess(make_config(retry_most_seconds=3600, retry_first_seconds=3600), Worker, SystemClock(), stop).run()


@pytest.mark.parametrize("changes", [{"pool_id": 2}, {"ledger": "0x" + "99" * 20}])
def test_another_pool_than_configured_is_an_error(
    pool: Any,
    make_config: Callable[..., WorkerConfig],
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
) -> None:
    monkeypatch.setattr(joining, "CoordinatorClient", lambda url, auth=None: pool.membership().coordinator)
    with pytest.raises(ConfigError, match="serves another"):
        joining.join(make_config(**changes), SystemClock())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_ends(number: signal.Signals) -> None:
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        stop = stop_on_signals("worker")
        os.kill(os.getpid(), number)
        assert stop.wait(5)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)


def test_a_refused_lease_leaves_nothing_to_return(pool: Any, make_config: Callable[..., WorkerConfig]) -> None:
    class Refused(StopsAfterTwo):
        def next_task(self) -> Any:
            self.stop.set()
            return super().next_task()

    pool.refusals["tasks"] = [RejectReason.LEASE_LIMIT]
    work(pool, make_config(), Refused)
    assert pool.returned == []
