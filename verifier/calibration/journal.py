"""What a calibration has measured so far, on disk: an interrupted run goes on where it was.

In: a header that fixes the run, and a line a measurement. Out: the same lines again after a restart. Appended and
synced line by line; a line that was cut off by a kill isn't read, and is measured again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.errors import UsageError
from verifier.calibration.observe import Observation

HONEST = "honest"


@dataclass(frozen=True)
class Entry:
    """One submission as one judge saw it. `kind` is HONEST or a deviation's name; `refused_by` the latter's checks."""

    kind: str
    number: int
    generator: str
    judge: str
    samples: tuple[Observation, ...]
    refused_by: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, int, str]:
        return self.kind, self.number, self.judge


@dataclass
class Journal:
    """Example: `Journal.open(path, header, resume=True).entries`."""

    path: Path
    entries: list[Entry] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path, header: dict[str, Any], *, resume: bool) -> Journal:
        """A new journal, or with `resume` the one that lies there. Raises UsageError where it is of another run."""
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            journal = cls(path)
            journal._write(header)
            return journal
        if not resume:
            raise UsageError("an earlier calibration wasn't finished", f"{path}", "go on with --resume, or delete it")
        lines = _whole_lines(path)
        if not lines or lines[0] != json.loads(json.dumps(header)):
            raise UsageError(
                "the unfinished calibration is another one", f"{path}", "give the same options, or delete it"
            )
        return cls(path, [_entry(line) for line in lines[1:]])

    def has(self, kind: str, number: int, judge: str) -> bool:
        return any(entry.key == (kind, number, judge) for entry in self.entries)

    def append(self, entry: Entry) -> None:
        """Durable when it returns."""
        rows = [sample.as_row() for sample in entry.samples]
        names = {"kind": entry.kind, "number": entry.number, "generator": entry.generator, "judge": entry.judge}
        self._write({**names, "samples": rows, "refused_by": entry.refused_by})
        self.entries.append(entry)

    def of_kind(self, kind: str) -> list[Entry]:
        """In order of their numbers, whatever order they were measured in."""
        return sorted((entry for entry in self.entries if entry.kind == kind), key=lambda entry: entry.number)

    def discard(self) -> None:
        self.path.unlink()

    def _write(self, document: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(document, separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _whole_lines(path: Path) -> Sequence[dict[str, Any]]:
    """Every complete line; the file is cut to these, so that the next is appended to a whole one."""
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(path, len(whole))
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except ValueError as error:
        raise UsageError("the unfinished calibration can't be read", f"{path}: {error}", "delete it") from error


def _entry(line: dict[str, Any]) -> Entry:
    samples = tuple(Observation.of_row(row) for row in line["samples"])
    refused_by = tuple(line["refused_by"])
    return Entry(line["kind"], line["number"], line["generator"], line["judge"], samples, refused_by)
