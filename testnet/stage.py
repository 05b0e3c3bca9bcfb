"""A stage of a run that has no table: it says what it does, and says so again while it lasts.

In: what is done. Out: a line at its start and one every 30 s.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from protocol.clock import Clock

REPORT_SECONDS = 30.0


@contextmanager
def stage(what: str, console: Console, clock: Clock, report_seconds: float = REPORT_SECONDS) -> Iterator[None]:
    """Example: `with stage("audit", console, clock): …`."""
    console.print(f"{what} …", markup=False, highlight=False)
    is_over = threading.Event()
    thread = threading.Thread(target=_repeat, args=(what, console, clock, report_seconds, is_over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _repeat(what: str, console: Console, clock: Clock, report_seconds: float, is_over: threading.Event) -> None:
    started = clock.now()
    while not clock.wait(is_over, report_seconds):
        console.print(f"waiting for {what} since {clock.now() - started:.0f} s", markup=False, highlight=False)
