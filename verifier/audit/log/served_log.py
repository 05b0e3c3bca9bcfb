"""The log as a coordinator serves it, one subject or one type at a time, each leaf hashed again.

In: a client. Out: what `protocol/events.py` asks of a log, with the leaf hash of each event. A leaf that isn't what it
says is noted in `faults`, so that all others are shown beside it. What was left out doesn't show here: for that the
whole log must be read (`log_reader.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.api import LogEntry
from protocol.client import CoordinatorClient
from protocol.errors import VerificationFailed
from protocol.events import BATCHED, LogEvent
from verifier.history import checked_leaf

PAGE, PAGE_OF_BATCHES = 200, 20
"""Leaves asked for at once; a batch's names all its groups."""


class ServedLog:
    """An `EventSource`. `leaf_hashes` and `faults` are by index, of every leaf that was looked at."""

    def __init__(self, client: CoordinatorClient, max_async: int) -> None:
        self._client = client
        self.max_async = max_async
        self.leaf_hashes: dict[int, str] = {}
        self.faults: dict[int, VerificationFailed] = {}

    def about(self, subject: str) -> Iterator[LogEvent]:
        return self._events(0, PAGE, subject=subject)

    def of_type(self, event_type: str, start: int) -> Iterator[LogEvent]:
        return self._events(start, PAGE_OF_BATCHES if event_type == BATCHED else PAGE, event_type=event_type)

    def _events(
        self, start: int, limit: int, subject: str | None = None, event_type: str | None = None
    ) -> Iterator[LogEvent]:
        """Raises VerificationFailed where the answer isn't what was asked for, in order."""
        while page := self._client.entries(start, limit, subject=subject, event_type=event_type):
            for entry in page:
                event = self._event(entry)
                if entry.index < start or subject not in (None, event.subject) or event_type not in (None, event.type):
                    why = f"leaf {entry.index}, {event.type} about {event.subject}; from leaf {start} on"
                    raise VerificationFailed("the coordinator serves other leaves than were asked for", why)
                yield event
                start = entry.index + 1

    def _event(self, entry: LogEntry) -> LogEvent:
        event = LogEvent.of(entry.event)
        self.leaf_hashes[entry.index] = entry.leaf_hash
        try:
            checked_leaf(entry, entry.index)
        except VerificationFailed as fault:
            self.faults[entry.index] = fault
        if event.index != entry.index:
            raise VerificationFailed(
                "the coordinator serves a leaf in another's place", f"{event.index} as {entry.index}"
            )
        return event
