"""Waiting for what others must do first: patiently, and never in silence.

In: an attempt that gives None, or raises Unreachable or a retryable Rejected, while it is too early. Out: what it
gives in the end, or None if stopped before. A line in the log when the wait begins, and every 30 s. A node of another
chain isn't waited for, nor a pool that was never made: they were named by mistake.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from protocol.chain.client import NO_SUCH_POOL
from protocol.clock import Clock
from protocol.errors import Rejected, TransactionReverted, Unreachable, WrongChain
from protocol.reasons import Cost
from protocol.telemetry import get_logger

REPORT_SECONDS = 30.0

T = TypeVar("T")


class Waiting:
    """Example: `waiting.until("the batch of step 3", lambda: client.lease_batch(3))`."""

    def __init__(self, clock: Clock, stop: threading.Event, poll_seconds: float) -> None:
        self.clock = clock
        self.stop = stop
        self.poll_seconds = poll_seconds

    def until(self, what: str, attempt: Callable[[], T | None]) -> T | None:
        """Repeat `attempt` until it gives something.

        Outages of others, and refusals that cost nothing but another try, are waited out; any other error travels.
        """
        since, reported = self.clock.now(), -REPORT_SECONDS
        while not self.stop.is_set():
            detail, pause_seconds = "", self.poll_seconds
            try:
                if (found := attempt()) is not None:
                    return found
            except WrongChain:
                raise
            except (Unreachable, Rejected) as error:
                if isinstance(error, TransactionReverted) and error.name == NO_SUCH_POOL:
                    raise
                if isinstance(error, Rejected) and error.reason.cost is not Cost.RETRY:
                    raise
                detail, pause_seconds = str(error), max(self.poll_seconds, error.retry_after_seconds)
            now = self.clock.now()
            if now - reported >= REPORT_SECONDS:
                reported = now
                get_logger().info("waiting", awaited=what, since_seconds=round(now - since, 1), why=detail)
            self.clock.wait(self.stop, pause_seconds)
        return None
