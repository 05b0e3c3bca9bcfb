"""Watches a run from outside, as anybody could: the coordinator's log and the trainer's metrics.

In: the coordinator's address and the run folder. Out: a growing `Tally`, step figures, and `events.jsonl`
in the run folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol.client import CoordinatorClient
from protocol.errors import CoordinatorUnreachable
from testnet.tally import Tally


class Observer:
    """Call `look` now and then; what was seen once is not asked for again."""

    def __init__(self, coordinator: CoordinatorClient, run_dir: Path, metrics_file: Path) -> None:
        self.tally = Tally()
        self.figures: list[Mapping[str, Any]] = []
        self._coordinator = coordinator
        self._events_file = run_dir / "events.jsonl"
        self._metrics_file = metrics_file
        self._next_index = 0
        self._metrics_read = 0

    def look(self) -> None:
        """Take in what is new. A coordinator that is down, or not up yet, is looked at again the next time."""
        self._look_at_metrics()
        try:
            entries = list(self._coordinator.all_entries(self._next_index))
        except CoordinatorUnreachable:
            return
        with self._events_file.open("a") as file:
            for entry in entries:
                self.tally.count(entry)
                file.write(json.dumps(entry.event) + "\n")
        if entries:
            self._next_index = entries[-1].index + 1

    def _look_at_metrics(self) -> None:
        if not self._metrics_file.exists():
            return
        with self._metrics_file.open() as file:
            file.seek(self._metrics_read)
            for line in file:
                if not line.endswith("\n"):
                    return
                figures = json.loads(line)
                if "objective" in figures:  # a step's, and no evaluation's
                    self.figures.append(figures)
                self._metrics_read += len(line.encode())
