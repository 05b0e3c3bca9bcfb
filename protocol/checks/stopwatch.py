"""What each stage of a check costs, for whoever runs one by hand.

In: the end of a stage. Out: seconds by stage, in the order in which they first ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Stopwatch:
    """Example: `watch.lap("rewards")` counts the time since the lap before to `rewards`."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._now = now
        self._last = now()

    def lap(self, stage: str) -> None:
        """The time since the last lap was this stage's."""
        time_now = self._now()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time_now - self._last
        self._last = time_now
