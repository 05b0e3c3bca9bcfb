"""Time that goes on by itself, a wait at a time, for whatever says how long it lasts."""

from __future__ import annotations

import threading


class Steps:
    """Time that goes on by a wait, `num_waits` times; then waits last until they are stopped. Not before it may go."""

    def __init__(self, num_waits: int) -> None:
        self.seconds = 0.0
        self.left = num_waits
        self.is_through = threading.Event()
        self.may_go = threading.Event()
        self.may_go.set()

    def now(self) -> float:
        return self.seconds

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.may_go.wait(10)
        if self.left == 0:
            self.is_through.set()
            return stop.wait()
        self.left -= 1
        self.seconds += seconds
        return False
