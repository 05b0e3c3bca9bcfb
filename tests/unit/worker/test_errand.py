"""Errands: one run at a time beside the loop, waited for with patience, and no fault gets lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from protocol.errors import CoordinatorUnreachable, ProofpoolError
from worker.errand import Errand
from worker.patience import Patience


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture
def make_errand(make_clock: Callable[[], Any], executor: ThreadPoolExecutor) -> Callable[..., tuple[Errand[Any], Any]]:
    def make(run: Callable[[], Any], pause_seconds: float = 0.0) -> tuple[Errand[Any], Any]:
        clock = make_clock()
        patience = Patience(clock, random.Random(0), 1.0, 10.0)
        return Errand(run, executor, clock, patience, pause_seconds), clock

    return make


def test_it_runs_beside_its_caller_and_only_once_at_a_time(make_errand: Any) -> None:
    go, runs = threading.Event(), []

    def run() -> str:
        runs.append(threading.current_thread())
        assert go.wait(10)
        return "done"

    errand, _ = make_errand(run)
    errand.start()
    errand.start()
    assert errand.take() is None and errand.is_under_way
    go.set()
    assert errand.finish(10) == "done"
    assert len(runs) == 1 and runs[0] is not threading.current_thread()
    assert errand.take() is None and not errand.is_under_way


def test_what_passes_is_waited_out(make_errand: Any) -> None:
    outcomes = [CoordinatorUnreachable("down"), OSError(28, "No space left on device"), None]

    def run() -> str:
        error = outcomes.pop(0)
        if error is not None:
            raise error
        return "done"

    errand, clock = make_errand(run)
    for _ in range(2):
        errand.start()
        assert errand.finish(10) is None
        errand.hurry()
        errand.start()
        assert not errand.is_under_way, "it is too early, whatever the hurry"
        clock.time += 10
    errand.start()
    assert errand.finish(10) == "done"


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ProofpoolError("a fault"), OSError(5, "I/O error")])
def test_what_no_wait_can_mend_is_raised_where_it_is_taken(make_errand: Any, error: Exception) -> None:
    def run() -> None:
        raise error

    errand, _ = make_errand(run)
    errand.start()
    with pytest.raises(type(error)):
        errand.finish(10)


def test_after_a_run_that_gave_nothing_it_pauses_unless_there_is_hurry(make_errand: Any) -> None:
    results = [["one"], [], ["two"]]
    errand, clock = make_errand(lambda: results.pop(0), pause_seconds=5.0)
    for _ in range(2):
        errand.start()
        errand.finish(10)
    errand.start()
    assert not errand.is_under_way
    clock.time += 4
    errand.start()
    assert not errand.is_under_way
    errand.hurry()
    errand.start()
    assert errand.finish(10) == ["two"]


def test_hurry_counts_also_while_one_run_is_under_way(make_errand: Any) -> None:
    errand, _ = make_errand(list, pause_seconds=5.0)
    errand.start()
    errand.hurry()
    errand.finish(10)
    errand.start()
    assert errand.is_under_way
    errand.finish(10)
    errand.start()
    assert not errand.is_under_way


def test_it_is_waited_for_as_long_as_can_be_asked(make_errand: Any) -> None:
    errand, _ = make_errand(lambda: "done")
    errand.start()
    assert errand.finish(1e300) == "done"
