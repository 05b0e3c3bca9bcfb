"""Leases that this node holds, remembered on disk: a restart finishes them or lets them expire.

In: signed tasks, before any work on them begins. Out: the unfinished ones. A lease is forgotten once
its submission lies in the outbox or its deadline has passed; the same task is never begun as two.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from protocol.files import sync_folder, write_atomically
from protocol.signing import SigningDomain
from protocol.telemetry import get_logger
from protocol.wire import Signed, Task


class Leases:
    """Example: `leases.remember(task)`, work, `leases.forget(task)`."""

    def __init__(self, folder: Path, domain: SigningDomain) -> None:
        self._folder = folder
        self._domain = domain
        folder.mkdir(parents=True, exist_ok=True)

    def recover(self) -> None:
        """Drop what a kill left half written. Only for the process that holds the data folder."""
        for leftover in self._folder.glob(".*"):
            leftover.unlink()

    def remember(self, task: Signed[Task]) -> None:
        write_atomically(self._path(task), task.model_dump_json().encode())

    def forget(self, task: Signed[Task]) -> None:
        self._path(task).unlink(missing_ok=True)
        sync_folder(self._folder)

    def open(self) -> list[Signed[Task]]:
        """What is remembered, the earliest deadline first."""
        paths = sorted(self._folder.glob("0x*.json"))
        found = [task for path in paths if (task := self._read(path)) is not None]
        return sorted(found, key=lambda task: (task.message.deadline, task.message.counter))

    def _read(self, path: Path) -> Signed[Task] | None:
        """The lease in `path`; a damaged one is dropped: the coordinator still knows it, and is asked for it."""
        try:
            return Signed[Task].model_validate_json(path.read_bytes())
        except ValidationError as error:
            get_logger().warning("lease.unreadable", file=str(path), detail=error.errors()[0]["msg"])
            path.unlink()
            return None

    def _path(self, task: Signed[Task]) -> Path:
        return self._folder / f"{task.message.id(self._domain)}.json"
