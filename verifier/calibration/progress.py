"""How far a long calculation is: a line that is rewritten on a terminal, a line every 30 seconds elsewhere.

In: steps done. Out: lines on a stream (stderr). Time is handed in.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TextIO

from protocol.clock import Clock, SystemClock

LINE_SECONDS = 30.0


@dataclass
class Progress:
    """Example: `progress = Progress("calibrating", 64); progress.step("float32")`."""

    what: str
    total: int
    clock: Clock = field(default_factory=SystemClock)
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    num_done: int = 0
    num_here: int = 0
    """Steps of this process; the rest were done before it started."""

    def __post_init__(self) -> None:
        self._start = self._last = self.clock.now()

    def skip(self) -> None:
        """One step that an earlier run has done."""
        self.num_done += 1

    def step(self, doing: str) -> None:
        """One step is done; `doing` says of what."""
        self.num_done += 1
        self.num_here += 1
        now = self.clock.now()
        if self.stream.isatty():
            print(f"\r\x1b[K{self._line(now, doing)}", end="", file=self.stream, flush=True)
        elif now - self._last >= LINE_SECONDS:
            self._last = now
            print(self._line(now, doing), file=self.stream, flush=True)

    def close(self) -> None:
        if self.stream.isatty():
            print(file=self.stream)

    def _line(self, now: float, doing: str) -> str:
        left = (now - self._start) / self.num_here * (self.total - self.num_done)
        return f"{self.what}: {self.num_done} of {self.total} ({doing}), about {left:.0f} s left"
