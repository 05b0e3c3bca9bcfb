"""Reading a whole log while saying on stderr how far it is.

In: a `CheckedLog`. Out: its events, counted as they go by.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from protocol.api import LogEntry
from protocol.progress import Progress
from verifier.audit.log.checked_log import CheckedLog

Events = Iterator[tuple[int, LogEntry]]
"""(epoch, event) in the log's order."""


@contextmanager
def reading(log: CheckedLog) -> Iterator[Events]:
    """To be believed once the events have ended. Raises VerificationFailed where it isn't the log under its heads."""
    with Progress("leaves of the log", log.num_leaves) as progress:
        progress.doing("reading and hashing")
        yield _counted(log.events(), progress)


def _counted(events: Events, progress: Progress) -> Events:
    for event in events:
        yield event
        progress.step()
