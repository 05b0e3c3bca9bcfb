"""Clocks: real time, with or without its jumps."""

from __future__ import annotations

import threading
import time

import pytest

from protocol.clock import SteadyClock, SystemClock


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_steady_clock_goes_on_where_the_other_jumps(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    real, steady, system = time.time, SteadyClock(), SystemClock()
    before = steady.now()
    assert abs(before - system.now()) < 60
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    assert 0 <= steady.now() - before < 60
    assert abs(system.now() - before - jump) < 60


def test_a_wait_longer_than_the_system_knows_ends_with_its_event() -> None:
    stop = threading.Event()
    threading.Timer(0.01, stop.set).start()
    assert SystemClock().wait(stop, 1e300)
    assert not SystemClock().wait(threading.Event(), 0.0)
