"""Something that waits for others, done in a thread beside the generating: one run at a time, with its own patience.

In: a function that may raise what passes (nobody answers, a refusal, a full disk). Out: its result, taken by the
loop when it looks. What doesn't pass is raised in the loop, where it ends the process.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from typing import Generic, TypeVar

from protocol.clock import Clock
from worker.patience import Patience, may_pass

T = TypeVar("T")


class Errand(Generic[T]):
    """Example: `errand.start()` as often as you like, `errand.take()` now and then."""

    def __init__(
        self,
        run: Callable[[], T],
        executor: Executor,
        clock: Clock,
        patience: Patience,
        pause_seconds: float = 0.0,
    ) -> None:
        """`pause_seconds` go by before another run, where one gave nothing (None, or an empty list)."""
        self._run = run
        self._executor = executor
        self._clock = clock
        self._patience = patience
        self._pause_seconds = pause_seconds
        self._patient_until = self._paused_until = 0.0
        self._is_hurried = False
        self._future: Future[T] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether it was started, and its result not taken."""
        return self._future is not None

    def start(self) -> None:
        """Begin, unless it is under way, or it is too early."""
        if self._future is None and self._clock.now() >= max(self._patient_until, self._paused_until):
            # Log lines of the thread carry the context of the one that starts it.
            self._is_hurried = False
            self._future = self._executor.submit(contextvars.copy_context().run, self._run)

    def hurry(self) -> None:
        """There is something new to do: another run doesn't wait for the pause, also if one is under way."""
        self._is_hurried = True
        self._paused_until = 0.0

    def put_off(self, seconds: float) -> None:
        """What the last run gave was of no use: no other begins for so long."""
        self._patient_until = self._clock.now() + seconds

    def take(self) -> T | None:
        """The result, once, where there is one by now; None after what passes, which is waited out."""
        if self._future is None or not self._future.done():
            return None
        future, self._future = self._future, None
        error = future.exception()
        if error is None:
            result = future.result()
            if not result and not self._is_hurried:
                self._paused_until = self._clock.now() + self._pause_seconds
            self._patience.rewarded()
            return result
        if not may_pass(error):
            raise error
        self._patient_until = self._clock.now() + self._patience.wait_for(error)
        return None

    def finish(self, seconds: float | None = None) -> T | None:
        """Wait for what is under way, for so long at most, and take it."""
        if self._future is not None:
            wait([self._future], None if seconds is None else min(seconds, threading.TIMEOUT_MAX))
        return self.take()
