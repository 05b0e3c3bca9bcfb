"""What a calibration has measured so far, on disk: an interrupted run goes on where it was.

In: a header that fixes the run, and a line a measurement. Out: the same lines again after a restart. Appended and
synced line by line; a line that was cut off by a kill isn't read, and is measured again. One process at a time holds
it: two that append to one journal would measure everything twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from protocol.errors import UsageError
from verifier.calibration.observe import Observation
from verifier.calibration.output import hold

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
    """Example: `with Journal.open(path, header, resume=True) as journal: journal.entries`."""

    path: Path
    _file: BinaryIO
    entries: list[Entry] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path, header: dict[str, Any], *, resume: bool) -> Journal:
        """A new journal, or with `resume` the one that lies there, held until it is closed.

        Raises UsageError where it is of another run, or another process is at it.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        file = hold(path)
        try:
            return cls(path, file, _begun(path, file, header, resume=resume))
        except BaseException:
            file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process go on."""
        self._file.close()

    def has(self, kind: str, number: int, judge: str) -> bool:
        return any(entry.key == (kind, number, judge) for entry in self.entries)

    def append(self, entry: Entry) -> None:
        """Durable when it returns."""
        rows = [sample.as_row() for sample in entry.samples]
        names = {"kind": entry.kind, "number": entry.number, "generator": entry.generator, "judge": entry.judge}
        _append(self._file, {**names, "samples": rows, "refused_by": entry.refused_by})
        self.entries.append(entry)

    def of_kind(self, kind: str) -> list[Entry]:
        """In order of their numbers, whatever order they were measured in."""
        return sorted((entry for entry in self.entries if entry.kind == kind), key=lambda entry: entry.number)

    def discard(self) -> None:
        self.path.unlink()


def num_kept(path: Path) -> int:
    """Measurements that lie in a journal; 0 where there is none."""
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def _begun(path: Path, file: BinaryIO, header: dict[str, Any], *, resume: bool) -> list[Entry]:
    """The entries that are there; a new file gets its header."""
    if not os.fstat(file.fileno()).st_size:
        _append(file, header)
        return []
    if not resume:
        raise UsageError("an earlier calibration wasn't finished", f"{path}", "go on with --resume, or delete it")
    lines = _whole_lines(path, file)
    if not lines or lines[0] != json.loads(json.dumps(header)):
        raise UsageError("the unfinished calibration is another one", f"{path}", "give the same options, or delete it")
    return [_entry(line) for line in lines[1:]]


def _append(file: BinaryIO, document: dict[str, Any]) -> None:
    file.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")
    file.flush()
    os.fsync(file.fileno())


def _whole_lines(path: Path, file: BinaryIO) -> Sequence[dict[str, Any]]:
    """Every complete line; the file is cut to these, so that the next is appended to a whole one."""
    file.seek(0)
    data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        file.truncate(len(whole))
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except ValueError as error:
        raise UsageError("the unfinished calibration can't be read", f"{path}: {error}", "delete it") from error


def _entry(line: dict[str, Any]) -> Entry:
    samples = tuple(Observation.of_row(row) for row in line["samples"])
    refused_by = tuple(line["refused_by"])
    return Entry(line["kind"], line["number"], line["generator"], line["judge"], samples, refused_by)
