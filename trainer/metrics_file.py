"""metrics.jsonl: what a run says of itself, a line a step, for curves, reports and whoever follows it.

In: figures by name. Out: lines that are durable once written, each a JSON object with its `step`. A line that a kill
has cut short is taken away before the next one is written.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol.errors import UsageError

FILE_NAME = "metrics.jsonl"
GROUPS_BY_USE = "num_groups_by_use"
"""Column: accepted groups since the pool began, by what became of them."""
LEFT_UNUSED = {
    "stale": "num_stale_groups",
    "no_variance": "num_dropped_groups",
    "surplus": "num_surplus_groups",
    "unfit": "num_unfit_groups",
}
"""Why an accepted group isn't trained on (docs/protocol.md), and the column that counts it since the line before."""
Line = dict[str, Any]


class MetricsFile:
    """Example: `MetricsFile(folder / FILE_NAME).append({"step": 1, "entropy": 0.4})`; by a thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: Mapping[str, object]) -> None:
        """Write a line; it is on the disk when this returns. What isn't finite is null. Raises OSError."""
        self._drop_torn_line()
        with self.path.open("a") as file:
            file.write(json.dumps(finite(line), allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> list[Line]:
        """The whole lines, in order; none where there is no file. Raises UsageError for one that can't be read."""
        if not self.path.exists():
            return []
        whole = self.path.read_text(errors="replace").rpartition("\n")[0]
        return [self._parsed(text, number) for number, text in enumerate(whole.splitlines(), start=1)]

    def _parsed(self, text: str, number: int) -> Line:
        try:
            line = json.loads(text)
        except ValueError as error:
            raise self._unreadable(number, str(error)) from error
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            raise self._unreadable(number, "it names no step")
        return line

    def _unreadable(self, number: int, why: str) -> UsageError:
        return UsageError(
            "a metrics file can't be read",
            f"{self.path}, line {number}: {why}",
            "take that line away, or name another file",
        )

    def _drop_torn_line(self) -> None:
        if not self.path.exists():
            return
        text = self.path.read_bytes()
        if text and not text.endswith(b"\n"):
            os.truncate(self.path, text.rfind(b"\n") + 1)


def finite(line: Mapping[str, object]) -> Line:
    """The line without numbers that JSON hasn't got: NaN and infinities are None, in its tables as well."""
    return {name: _finite(value) for name, value in line.items()}


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return finite(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
