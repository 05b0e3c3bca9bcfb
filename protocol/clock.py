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
        return stop.wait(min(seconds, threading.TIMEOUT_MAX))


class SteadyClock(SystemClock):
    """Real time that never jumps, for what is paced and not dated: Unix seconds of its making, and what went by since.

    Somebody who sets this machine's clock an hour back holds nothing up, and an hour ahead ends nothing early. Sleep of
    the machine counts where the system tells (Linux).
    """

    def __init__(self) -> None:
        self._started, self._passed = time.time(), _passed()

    def now(self) -> float:
        return self._started + _passed() - self._passed


def _passed() -> float:
    """Seconds since whenever."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)
