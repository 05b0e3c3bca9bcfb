"""How often nodes were refused at the door since the last epoch, in memory: what `coordinator/door.py` logs of it.

In: a door, a node, a reason. Out: counts. What was counted since the last epoch is lost when the process ends.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

MAX_KEYS = 10_000
"""Different (door, node, reason) in memory; whatever comes after that goes without its node."""
NOBODY = ""


class Door(StrEnum):
    """What was asked for; the names of the lists in the leaf."""

    LEASES = "leases"
    SUBMISSIONS = "submissions"


class Key(NamedTuple):
    """What is counted. `node` is empty for all those that get no row of their own."""

    door: Door
    node: str
    reason: str


class Refusals:
    """The counts. Requests and the loop use it at once.

    Example: `refusals.note(Key(Door.LEASES, node, "lease_limit"))`.
    """

    def __init__(self) -> None:
        self._counts: Counter[Key] = Counter()
        self._lock = threading.Lock()

    def note(self, key: Key) -> None:
        with self._lock:
            has_room = key in self._counts or len(self._counts) < MAX_KEYS
            self._counts[key if has_room else key._replace(node=NOBODY)] += 1

    def counts(self) -> Counter[Key]:
        with self._lock:
            return self._counts.copy()

    def forget(self, logged: Mapping[Key, int]) -> None:
        """Drop what has got its leaf; what came in meanwhile stays."""
        with self._lock:
            self._counts.subtract(logged)
            self._counts = +self._counts
