"""What all cheats have in common: they don't judge their own files before they send them."""

from __future__ import annotations

from worker.loop import Worker
from worker.outbox import Entry
from worker.work import Work


class Dishonest(Worker):
    """A worker that skips the check of its own work."""

    def check_own(self, work: Work, entry: Entry, file: bytes) -> None:
        return
