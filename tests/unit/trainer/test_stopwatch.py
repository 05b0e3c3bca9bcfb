"""Where the trainer's seconds go, by a clock that the test puts forward."""

from __future__ import annotations

import pytest

from tests.unit.trainer.set_clock import SetClock
from trainer.stopwatch import Bottleneck, Phase, StepTimes, Stopwatch, bottleneck


@pytest.fixture
def clock() -> SetClock:
    return SetClock(100.0)


def spend(stopwatch: Stopwatch, clock: SetClock, phase: Phase, seconds: float) -> None:
    with stopwatch.phase(phase):
        clock.time += seconds


def test_a_lap_has_each_phases_seconds_and_the_next_one_starts_anew(clock: SetClock) -> None:
    stopwatch = Stopwatch(clock)
    spend(stopwatch, clock, Phase.BATCH, 5)
    spend(stopwatch, clock, Phase.LEARNING, 3)
    spend(stopwatch, clock, Phase.BATCH, 1)
    clock.time += 2  # between phases
    assert stopwatch.lap(unpublished_seconds=4) == StepTimes(6, 4, 3, 0, 0, 0, 11)
    spend(stopwatch, clock, Phase.SAVING, 7)
    assert stopwatch.lap() == StepTimes(0, 0, 0, 0, 0, 7, 7)
    assert stopwatch.totals()[Phase.BATCH] == 6 and stopwatch.totals()[Phase.SAVING] == 7


def test_more_can_t_be_unpublished_than_was_waited(clock: SetClock) -> None:
    stopwatch = Stopwatch(clock)
    spend(stopwatch, clock, Phase.BATCH, 2)
    assert stopwatch.lap(unpublished_seconds=9).unpublished_seconds == 2


def test_the_phase_at_hand_is_told_with_its_seconds_and_ends_with_an_error(clock: SetClock) -> None:
    stopwatch = Stopwatch(clock)
    with pytest.raises(OSError), stopwatch.phase(Phase.LEARNING):
        clock.time += 8
        assert stopwatch.current() == (Phase.LEARNING, 8)
        assert stopwatch.totals()[Phase.LEARNING] == 8
        raise OSError
    assert stopwatch.current() == (Phase.OTHER, 0)


def test_a_clock_that_is_set_back_takes_nothing_away(clock: SetClock) -> None:
    stopwatch = Stopwatch(clock)
    spend(stopwatch, clock, Phase.LEARNING, -50)
    assert stopwatch.lap().learn_seconds == 0


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (StepTimes(9, 0, 5, 1, 0, 1, 16), Bottleneck.BATCH),
        (StepTimes(9, 7, 5, 1, 0, 1, 16), Bottleneck.PUBLISHING),  # 8 of publishing, 2 of the batch
        (StepTimes(3, 0, 5, 1, 0, 1, 16), Bottleneck.TRAINING),
        (StepTimes(3, 0, 2, 1, 6, 1, 16), Bottleneck.EVALUATION),
    ],
)
def test_the_bottleneck_is_what_took_longest(times: StepTimes, expected: Bottleneck) -> None:
    assert bottleneck(times.by_bottleneck) is expected
