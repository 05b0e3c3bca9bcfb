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
    tally = Tally()
    told = [awaited(tally, 1, ["worker-3"])]
    tally.policy_version = 0
    told.append(awaited(tally, 1, ["worker-3"]))
    tally.leased = 1
    told.append(awaited(tally, 1, ["worker-3"]))
    tally.batches = 1
    told.append(awaited(tally, 1, ["worker-3"]))
    tally.step = tally.policy_version = 1
    tally.nodes["0x"] = NodeTally(working={"a"}, unsettled={"b"})
    told.append(awaited(tally, 1, ["worker-3"]))
    tally.nodes["0x"].working.clear()
    told.append(awaited(tally, 1, ["worker-3"]))
    tally.nodes["0x"].unsettled.clear()
    told += [awaited(tally, 1, ["worker-3"]), awaited(tally, 1, [])]
    assert told == [
        "the first policy version",
        "the first lease",
        "accepted groups for step 1",
        "the trainer to take step 1",
        "workers to finish the tasks at hand",
        "verdicts on the last submissions",
        "the slash of worker-3: a provider has time to appeal",
        "nothing more",
    ]


def test_since_counts_from_the_last_change() -> None:
    clock = SetClock()
    waiting = Awaited(clock)
    seen = []
    for clock.time, what in ((5.0, "a"), (7.0, "a"), (8.0, "b"), (8.5, "b"), (9.0, "a")):
        seen.append(waiting.since(what))
    assert seen == [0.0, 2.0, 0.0, 0.5, 0.0]
