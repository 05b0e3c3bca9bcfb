"""How a role is asked to end: the first SIGTERM or SIGINT sets an event, and what is at hand is finished first.

A second signal has its usual effect, which is as safe as kill -9: each role's state is durable at any moment.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from protocol.telemetry import get_logger


def stop_on_signals(role: str) -> threading.Event:
    """Install the handlers (main thread only); the event that they set. Logs `ROLE.stopping`."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        get_logger().info(f"{role}.stopping", signal=signal.Signals(number).name)
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    return stop


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, so that what it was writing is cleared away; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
