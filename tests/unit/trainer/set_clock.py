"""Time that stands until a test puts it forward."""

from __future__ import annotations

import threading


class SetClock:
    """A clock that only tells the time."""

    def __init__(self, time: float = 0.0) -> None:
        self.time = time

    def now(self) -> float:
        return self.time

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        raise AssertionError("nobody waits by this clock")
