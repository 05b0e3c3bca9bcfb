"""How a loop waits for something outside: longer each time, with jitter, and never in silence.

In: the error that stands in the way. Out: seconds until the next attempt, and log lines `waiting` with the
obstacle, why it is one, since when, and what to do.
"""

from __future__ import annotations

import errno
import random
from typing import TypeGuard

from protocol.clock import Clock
from protocol.errors import NotEligible, NotFound, ProofpoolError, Rejected, Unreachable, VerificationFailed
from protocol.telemetry import get_logger

GROWTH = 1.6
MAX_GROWTHS = 64
SPREAD = 0.25
"""Of a time that was asked for: so much later at most."""
LOG_SECONDS = 30.0
OUTSIDE = (Unreachable, Rejected, NotEligible, NotFound, VerificationFailed)
"""Errors that somebody else can mend: waited out, not died of."""
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def may_pass(error: BaseException) -> TypeGuard[ProofpoolError | OSError]:
    """Whether waiting can mend it: it is somebody else's, or the disk is full."""
    return isinstance(error, OUTSIDE) or (isinstance(error, OSError) and error.errno in FULL_DISK)


class Patience:
    """Example: `clock.wait(stop, patience.wait_for(error))`, and `patience.rewarded()` once it is over."""

    def __init__(
        self, clock: Clock, source: random.Random, first_seconds: float, most_seconds: float, quiet: bool = False
    ) -> None:
        self._quiet = quiet
        self._clock = clock
        self._source = source
        self._first_seconds = first_seconds
        self._most_seconds = most_seconds
        self._obstacle = ""
        self._since = 0.0
        self._num_attempts = 0
        self._logged_seconds = 0.0

    def another(self, quiet: bool = False) -> Patience:
        """One with the same temper, for something else; `quiet` where nobody would miss it."""
        return Patience(self._clock, self._source, self._first_seconds, self._most_seconds, quiet)

    def wait_for(self, error: ProofpoolError | OSError) -> float:
        """Seconds to wait: between half and all of a bound that grows up to `most_seconds`.

        Where who refused has named a time, no less than that, and spread out past it: it named it to many.
        """
        obstacle, why, todo = _explained(error)
        if obstacle != self._obstacle:
            self.rewarded()
            self._obstacle, self._since, self._num_attempts = obstacle, self._clock.now(), 0
        bound = min(self._most_seconds, self._first_seconds * GROWTH ** min(self._num_attempts, MAX_GROWTHS))
        self._num_attempts += 1
        self._log(why, todo)
        share = self._source.random()
        return max(bound * (0.5 + 0.5 * share), _asked_seconds(error) * (1 + SPREAD * share))

    def rewarded(self) -> None:
        """The obstacle is gone."""
        if self._obstacle and not self._quiet:
            get_logger().info("waited", obstacle=self._obstacle, seconds=self._waited_seconds())
        self._obstacle = ""

    def _log(self, why: str, todo: str) -> None:
        """At once, then every `LOG_SECONDS`: neither silence nor noise."""
        waited_seconds = self._waited_seconds()
        if self._quiet:
            return
        if self._num_attempts == 1 or waited_seconds - self._logged_seconds >= LOG_SECONDS:
            self._logged_seconds = waited_seconds
            get_logger().info("waiting", obstacle=self._obstacle, since_seconds=waited_seconds, why=why, todo=todo)

    def _waited_seconds(self) -> float:
        return round(self._clock.now() - self._since, 1)


def _asked_seconds(error: ProofpoolError | OSError) -> float:
    return error.retry_after_seconds if isinstance(error, ProofpoolError) else 0.0


def _explained(error: ProofpoolError | OSError) -> tuple[str, str, str]:
    """What stands in the way, why, and what a person could do."""
    if isinstance(error, ProofpoolError):
        return error.what, error.why, error.todo
    return "the disk is full", str(error), "make room on the disk of data_dir"
