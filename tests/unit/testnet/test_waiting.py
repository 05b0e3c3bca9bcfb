"""What a run says that it waits for, from its start to its end."""

from __future__ import annotations

import threading

from testnet.tally import NodeTally, Tally
from testnet.waiting import Awaited, awaited


class SetClock:
    """A clock that a test sets."""

    time = 0.0

    def now(self) -> float:
        return self.time

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        return stop.is_set()


def test_every_stage_has_its_words() -> None:
    tally, idle, unslashed, at_work, told = Tally(), ["worker-1", "worker-2"], ["worker-3"], ["worker-0"], []

    def tell() -> None:
        told.append(awaited(tally, 1, idle, unslashed, at_work))

    tell()
    tally.policy_version = 0
    tell()
    tally.leased = 1
    tell()
    tally.batches = 1
    tell()
    tally.step = tally.policy_version = 1
    tell()
    idle.clear()
    tally.nodes["0x"] = NodeTally(working={"a"}, unsettled={"b"})
    tell()
    tally.nodes["0x"].working.clear()
    tell()
    tally.nodes["0x"].unsettled.clear()
    tell()
    unslashed.clear()
    tell()
    at_work.clear()
    tell()
    assert told == [
        "the first policy version",
        "the first lease",
        "accepted groups for step 1",
        "the trainer to take step 1",
        "a first submission of worker-1, worker-2",
        "workers to finish the tasks at hand",
        "verdicts on the last submissions",
        "the slash of worker-3: a provider has time to appeal",
        "worker-0 to end",
        "nothing more",
    ]


def test_since_counts_from_the_last_change() -> None:
    clock = SetClock()
    waiting = Awaited(clock)
    seen = []
    for clock.time, what in ((5.0, "a"), (7.0, "a"), (8.0, "b"), (8.5, "b"), (9.0, "a")):
        seen.append(waiting.since(what))
    assert seen == [0.0, 2.0, 0.0, 0.5, 0.0]
