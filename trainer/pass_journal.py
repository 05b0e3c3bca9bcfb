"""Passes of problems, kept line by line while they are measured, so that a run that is cut short goes on.

In: what is measured, as the first line; passes of some problems at a time. Out: those of all problems so far.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from protocol.errors import MalformedFile
from protocol.files import write_atomically

CHUNK_PROBLEMS = 64
"""Problems between two lines of what is measured."""
_COUNTS = TypeAdapter(list[int])


class PassJournal:
    """Example: `PassJournal(folder / "4.jsonl", plan).append([3, 0, 8])`. `plan` is what its passes depend on."""

    def __init__(self, path: Path, plan: BaseModel) -> None:
        self.path = path
        self._head = plan.model_dump_json()

    @property
    def other_plan(self) -> str | None:
        """What an earlier run measured here, where that is something else."""
        head = self.path.read_text().partition("\n")[0] if self.path.exists() else self._head
        return None if head == self._head else head

    def start_anew(self) -> None:
        """Forget what is measured."""
        write_atomically(self.path, self._head.encode() + b"\n")

    def passes(self) -> list[int]:
        """Of the problems that are measured, in order. A line that a kill has cut short is taken away.

        Raises MalformedFile for a whole one that can't be read.
        """
        if not self.path.exists():
            self.start_anew()
            return []
        _, *lines = self.path.read_text().split("\n")
        whole, torn = lines[:-1], lines[-1]
        if torn:
            os.truncate(self.path, self.path.stat().st_size - len(torn.encode()))
        return [count for number, line in enumerate(whole, start=2) for count in self._counts(line, number)]

    def _counts(self, line: str, number: int) -> list[int]:
        try:
            return _COUNTS.validate_json(line)
        except ValidationError as error:
            why = f"{self.path}, line {number}: {error.errors()[0]['msg']}"
            raise MalformedFile("what was measured can't be read", why, "delete the file") from error

    def append(self, passes: Sequence[int]) -> None:
        """Of the next problems; durable when this returns."""
        with self.path.open("a") as file:
            file.write(json.dumps(list(passes)) + "\n")
            file.flush()
            os.fsync(file.fileno())
