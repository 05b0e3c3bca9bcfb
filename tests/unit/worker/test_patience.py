"""Waiting for the outside: longer each time, bounded, spread out, and started anew for another cause."""

from __future__ import annotations

import random

import pytest
from structlog.testing import capture_logs

from protocol.errors import CoordinatorUnreachable, Rejected
from protocol.reasons import RejectReason
from worker.patience import Patience, may_pass


class StillClock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def wait(self, stop: object, seconds: float) -> bool:
        return False


class Always(random.Random):
    """Jitter that is always the same."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share

    def random(self) -> float:
        return self._share


def make_patience(share: float = 1.0) -> Patience:
    return Patience(StillClock(), Always(share), first_seconds=1.0, most_seconds=10.0)


DOWN = CoordinatorUnreachable("the coordinator doesn't answer")


def test_waits_grow_up_to_the_most() -> None:
    patience = make_patience()
    waits = [patience.wait_for(DOWN) for _ in range(3000)]
    assert waits[0] == 1.0
    assert waits == sorted(waits)
    assert waits[-1] == 10.0


def test_jitter_takes_up_to_half() -> None:
    assert make_patience(share=0.0).wait_for(DOWN) == 0.5


def test_it_says_what_it_waits_for_at_once_and_every_half_minute() -> None:
    clock = StillClock()
    patience = Patience(clock, Always(1.0), first_seconds=1.0, most_seconds=1.0)
    with capture_logs() as lines:
        for second in range(100):
            clock.seconds = float(second)
            patience.wait_for(DOWN)
        patience.rewarded()
    assert [(line["event"], line.get("since_seconds")) for line in lines] == [
        ("waiting", 0.0),
        ("waiting", 30.0),
        ("waiting", 60.0),
        ("waiting", 90.0),
        ("waited", None),
    ]
    assert lines[0]["obstacle"] == "the coordinator doesn't answer"


@pytest.mark.parametrize("anew", [True, False])
def test_another_cause_and_a_reward_start_anew(anew: bool) -> None:
    patience = make_patience()
    for _ in range(4):
        patience.wait_for(DOWN)
    if anew:
        patience.rewarded()
        assert patience.wait_for(DOWN) == 1.0
    else:
        assert patience.wait_for(DOWN) > 1.0
    assert patience.wait_for(Rejected(RejectReason.LEASE_LIMIT)) == 1.0
    assert patience.wait_for(Rejected(RejectReason.POOL_PAUSED)) == 1.0


def test_a_time_that_was_asked_for_is_waited_in_full_and_spread_out_past_it() -> None:
    busy = Rejected(RejectReason.NO_DEMAND)
    busy.retry_after_seconds = 60.0
    assert make_patience(share=0.0).wait_for(busy) == 60.0
    assert make_patience(share=1.0).wait_for(busy) == 75.0


def test_own_patience_that_is_longer_than_what_was_asked_for_stands() -> None:
    patience, busy = make_patience(), Rejected(RejectReason.NO_DEMAND)
    busy.retry_after_seconds = 1.0
    assert [patience.wait_for(busy) for _ in range(40)][-1] == 10.0


def test_where_nobody_would_miss_it_the_wait_is_silent() -> None:
    with capture_logs() as lines:
        quiet, loud = make_patience().another(quiet=True), make_patience().another()
        for patience in (quiet, loud):
            assert patience.wait_for(DOWN) == 1.0
            patience.rewarded()
    assert [line["event"] for line in lines] == ["waiting", "waited"]


@pytest.mark.parametrize(
    ("error", "passes"),
    [(DOWN, True), (OSError(28, "full"), True), (OSError(27, "too large"), True), (OSError(5, "I/O"), False)],
)
def test_what_passes_is_told_from_what_doesnt(error: Exception, passes: bool) -> None:
    assert may_pass(error) is passes
    assert not may_pass(ValueError("a bug"))
