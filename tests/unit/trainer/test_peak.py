"""The peak of MFU: by a CPU's own seconds, and never below what learning reaches."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch

from trainer.peak import Peak, measured_peak

CPU = torch.device("cpu")


def test_a_peak_is_that_of_the_quickest_product() -> None:
    """By a clock on which a product of 256 takes too little to be timed, and one of 512 takes 2, 1, 3, 4 and 5 s."""
    times: Iterator[float] = iter([0, 0.01] * 5 + [0, 2, 10, 11, 20, 23, 30, 34, 40, 45])
    peak = measured_peak(CPU, torch.float32, lambda: next(times))
    assert peak == 2 * 512**3 / 1
    assert next(times, None) is None


def test_a_cpu_is_timed_in_its_own_seconds_however_long_others_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock goes by 1 s a look, the wall's by an hour; two threads share that second, and do twice as much."""
    worked, walled = iter(range(1000)), iter(range(0, 3_600_000, 3600))
    monkeypatch.setattr(time, "process_time", lambda: float(next(worked)))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(walled)))
    peaks = []
    for num_threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda num=num_threads: num)
        peaks.append(measured_peak(CPU, torch.float32))
    assert peaks == [2 * 256**3, 2 * 2 * 256**3]


def test_what_was_measured_rises_to_what_learning_reaches_and_what_was_given_doesnt() -> None:
    measured, given = Peak(100.0), Peak(100.0, is_given=True)
    assert [measured.share(rate) for rate in (50.0, 190.0, 95.0)] == [0.5, 1.0, 0.5]
    assert [given.share(rate) for rate in (50.0, 190.0, 95.0)] == [0.5, 1.9, 0.95]
