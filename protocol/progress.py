"""How far a long calculation is: a line that is rewritten on a terminal, a line at least every 30 seconds elsewhere.

In: what is being done, and steps done. Out: lines on a stream (stderr), also while one step lasts. Time is handed in.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from protocol.clock import Clock, SystemClock

LINE_SECONDS = 30.0
TERMINAL_SECONDS = 1.0


class Steps(Protocol):
    """Who is told how far a calculation is."""

    def doing(self, what: str) -> None: ...

    def still(self, what: str) -> None: ...

    def step(self) -> None: ...


class Unseen:
    """Nobody looks."""

    def doing(self, what: str) -> None:
        pass

    def still(self, what: str) -> None:
        pass

    def step(self) -> None:
        pass


@dataclass
class Progress:
    """Example: `with Progress("honest tasks", 64) as progress: progress.doing("float32"); …; progress.step()`."""

    what: str
    total: int
    clock: Clock = field(default_factory=SystemClock)
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    num_done: int = 0
    num_here: int = 0
    """Steps of this process; the rest were done before it started."""
    verb: str = "doing"
    """What it is about the present step: doing it, or waiting for it."""
    is_patient: bool = False
    """Off a terminal, say nothing of what is over within the time of a line."""

    def __enter__(self) -> Progress:
        self._start = self._since = self.clock.now()
        self._doing = ""
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._is_terminal = self.stream.isatty()
        self._thread = threading.Thread(target=self._repeat, name=f"progress of {self.what}", daemon=True)
        self._is_seen = self._is_terminal or not self.is_patient
        if self._is_seen:
            self._print()
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        """Says how far it came, whatever ended it."""
        self._is_over.set()
        self._thread.join()
        self._doing = ""
        if self._is_seen:
            self._print()
        if self._is_terminal:
            print(file=self.stream, flush=True)

    def skip(self) -> None:
        """One step that an earlier run has done."""
        self.num_done += 1

    def doing(self, what: str) -> None:
        """The next step has begun."""
        self._doing, self._since = what, self.clock.now()
        if self._is_terminal:
            self._print()

    def still(self, what: str) -> None:
        """The same step, said anew: how far it is."""
        self._doing = what

    def step(self) -> None:
        """One step is done."""
        self.num_done += 1
        self.num_here += 1

    def _repeat(self) -> None:
        while not self.clock.wait(self._is_over, TERMINAL_SECONDS if self._is_terminal else LINE_SECONDS):
            self._is_seen = True
            self._print()

    def _print(self) -> None:
        with self._lock:
            start, end = ("\r\x1b[K", "") if self._is_terminal else ("", "\n")
            print(f"{start}{self._line(self.clock.now())}", end=end, file=self.stream, flush=True)

    def _line(self, now: float) -> str:
        doing = f"; {self.verb} {self._doing} since {now - self._since:.0f} s" if self._doing else ""
        left = ""
        if self.num_here and self._doing:
            left = f", about {(now - self._start) / self.num_here * (self.total - self.num_done):.0f} s left"
        return f"{self.what}: {self.num_done} of {self.total} done after {now - self._start:.0f} s{left}{doing}"
