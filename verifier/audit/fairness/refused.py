"""Who was refused at the door, as the coordinator counted it: `door.refused`, a leaf an epoch.

In: events in order. Out: sums by door, node and reason. Nothing proves that a refusal is missing here.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from pydantic import Strict

from protocol.api import LogEntry
from protocol.wire import Address
from verifier.audit.log.event_data import Count, EventData, Readings, Reason, kind_of

DOORS = ("leases", "submissions")
OTHERS = ""
"""In place of a node: those that got no row."""

_Row = Annotated[tuple[Address, Reason, Count], Strict(False)]


class _Others(EventData):
    leases: dict[Reason, Count] = {}
    submissions: dict[Reason, Count] = {}


class _Refused(EventData):
    leases: list[_Row]
    submissions: list[_Row]
    others: _Others


class Refused:
    """Example: `refused.note(entry)` for each event, then `refused.counts["leases", node, "lease_limit"]`."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.num_epochs = 0
        """In which somebody was refused."""
        self.readings = Readings()

    def note(self, entry: LogEntry) -> None:
        if kind_of(entry) != "door.refused" or (said := self.readings.read(_Refused, entry)) is None:
            return
        self.num_epochs += 1
        for door in DOORS:
            for node, reason, number in getattr(said, door):
                self.counts[door, node, reason] += number
            for reason, number in getattr(said.others, door).items():
                self.counts[door, OTHERS, reason] += number

    def by_node(self, door: str) -> dict[str, dict[str, int]]:
        """Reasons with their numbers, in order of node and reason; nodes without a row stand under `OTHERS`."""
        rows: dict[str, dict[str, int]] = {}
        for (where, node, reason), number in sorted(self.counts.items()):
            if where == door:
                rows.setdefault(node, {})[reason] = number
        return rows

    def as_json(self) -> dict[str, Any]:
        doors = {door: self.by_node(door) for door in DOORS}
        return {
            "num_epochs": self.num_epochs,
            **{door: {node: said for node, said in rows.items() if node} for door, rows in doors.items()},
            "others": {door: rows.get(OTHERS, {}) for door, rows in doors.items()},
        }
