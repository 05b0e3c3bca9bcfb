"""Time as something that is handed in, so that logical time can run the same loops as real time."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What a loop may ask of time."""

    def now(self) -> float:
        """Unix seconds."""
        ...

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Wait up to `seconds`; True as soon as `stop` is set."""
        ...


class SystemClock:
    """Real time."""

    def now(self) -> float:
        return time.time()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        return stop.wait(seconds)
