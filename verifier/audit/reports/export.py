"""`proofpool audit export`: the history, or what matches of it, as one file, whole and checked or not there at all.

In: a `CheckedLog`, what is wanted of it, a path. Out: the file and an `ExportSummary`. Rows go to a temporary file
while the log is read and hashed; only when every leaf up to the last head is under its heads does it get its name.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, ConfigDict

from protocol.errors import UsageError
from protocol.events import CHAIN, TYPES, LogEvent
from protocol.files import atomic_file
from protocol.signals import interrupted_by_sigterm
from protocol.wire import Hash32, UInt64
from verifier.audit.log.checked_log import CheckedLog
from verifier.audit.log.reading import Events, reading
from verifier.audit.reports.row_files import Format, write_rows
from verifier.audit.reports.rows import Row, row_of


@dataclass(frozen=True)
class Wanted:
    """Which leaves: those that every filter that is given lets through. Epochs are inclusive."""

    types: tuple[str, ...] = ()
    """Whole types, or beginnings that end in `*`."""
    subjects: tuple[str, ...] = ()
    node: str | None = None
    provider: str | None = None
    since_epoch: int | None = None
    until_epoch: int | None = None

    def holds(self, epoch: int, event: LogEvent) -> bool:
        if self.since_epoch is not None and epoch < self.since_epoch:
            return False
        if self.until_epoch is not None and epoch > self.until_epoch:
            return False
        if self.subjects and event.subject not in self.subjects:
            return False
        if self.types and not any(_is_of_type(event.type, wanted) for wanted in self.types):
            return False
        return self.node in (None, event.node) and self.provider in (None, event.provider)

    def as_json(self) -> dict[str, Any]:
        epochs = {"since_epoch": self.since_epoch, "until_epoch": self.until_epoch}
        whom = {"node": self.node, "provider": self.provider}
        given = {"type": list(self.types), "subject": list(self.subjects), **whom, **epochs}
        return {name: value for name, value in given.items() if value not in (None, [])}


class ExportedHead(BaseModel):
    model_config = ConfigDict(frozen=True)
    epoch: UInt64
    size: UInt64
    root: Hash32


class ExportSummary(BaseModel):
    """What was written, and what vouches for it: `head` is the last one that was checked, None before the first."""

    model_config = ConfigDict(frozen=True)
    schema_version: int = 1
    file: str
    format: Format
    num_rows: UInt64
    num_bytes: UInt64
    sha256: Hash32
    num_leaves: UInt64
    """Read and hashed."""
    head: ExportedHead | None
    anchored: bool
    anchor: str
    filters: dict[str, Any]


def export(log: CheckedLog, wanted: Wanted, path: Path, row_format: Format) -> ExportSummary:
    """Raises VerificationFailed where the log isn't the one under its heads; then there is no file."""
    log = _up_to(log, wanted.until_epoch)
    with interrupted_by_sigterm(), atomic_file(path) as file:
        with reading(log) as events:
            num_rows = write_rows(_rows(events, wanted), file, row_format)
        num_bytes, digest = file.seek(0, os.SEEK_END), _sha256(file)
    last = log.heads[-1] if log.heads else None
    return ExportSummary(
        file=str(path),
        format=row_format,
        num_rows=num_rows,
        num_bytes=num_bytes,
        sha256=digest,
        num_leaves=log.num_leaves,
        head=None if last is None else ExportedHead(epoch=last.epoch, size=last.size, root=last.root),
        anchored=log.chain is not None,
        anchor=log.anchor,
        filters=wanted.as_json(),
    )


def _rows(events: Events, wanted: Wanted) -> Iterator[Row]:
    for epoch, entry in events:
        event = LogEvent.of(entry.event)
        if wanted.holds(epoch, event):
            yield row_of(epoch, event, entry)


def _up_to(log: CheckedLog, epoch: int | None) -> CheckedLog:
    """The first head of a later epoch is read to only where the chain has forgotten all earlier ones."""
    if epoch is None:
        return log
    return replace(log, heads=[head for head in log.heads if head.epoch <= epoch] or log.heads[:1])


def _sha256(file: BinaryIO) -> str:
    """Of all that was written, in pieces."""
    digest = hashlib.sha256()
    file.seek(0)
    while piece := file.read(1 << 20):
        digest.update(piece)
    return f"0x{digest.hexdigest()}"


def check_types(wanted: Iterable[str]) -> None:
    """Raises UsageError for a type that no leaf ever has: a slip would write an empty file."""
    from protocol.chain.contracts import EVENT_SOURCES, abi_of

    copied = {f"{CHAIN}{name}" for contract in EVENT_SOURCES for name in abi_of(contract).events}
    for one in wanted:
        if not any(_is_of_type(known, one) for known in (*TYPES, *copied)):
            listed = ", ".join([*sorted(TYPES), *sorted(copied)])
            raise UsageError("no leaf is of that type", f"--type {one}", f"`task.*` is all of a kind; types: {listed}")


def _is_of_type(event_type: str, wanted: str) -> bool:
    return event_type.startswith(wanted[:-1]) if wanted.endswith("*") else event_type == wanted
