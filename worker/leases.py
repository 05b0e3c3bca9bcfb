"""Leases that this node holds, remembered on disk: a restart finishes them or lets them expire.

In: signed tasks, before any work on them begins. Out: the unfinished ones. A lease is forgotten once
its submission lies in the outbox or its deadline has passed; the same task is never begun as two. A renewal lies beside
its lease.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from protocol.files import sync_folder, write_atomically
from protocol.signing import SigningDomain
from protocol.telemetry import get_logger
from protocol.wire import Renewal, Signed, Task


class Leases:
    """Example: `leases.remember(task)`, work, `leases.forget(task)`."""

    def __init__(self, folder: Path, domain: SigningDomain) -> None:
        self._folder = folder
        self._domain = domain
        folder.mkdir(parents=True, exist_ok=True)

    def recover(self) -> None:
        """Drop what a kill left half written, or half forgotten. Only for the process that holds the data folder."""
        for leftover in self._folder.glob(".*"):
            leftover.unlink()
        for renewal in self._folder.glob("0x*.renewal"):
            if not renewal.with_suffix(".json").exists():
                renewal.unlink()

    def remember(self, task: Signed[Task]) -> None:
        write_atomically(self._path(task), task.model_dump_json().encode())

    def renew(self, task: Signed[Task], renewal: Signed[Renewal]) -> None:
        """Remember a later deadline of a remembered task."""
        write_atomically(self._renewal_path(task), renewal.model_dump_json().encode())

    def deadline(self, task: Signed[Task]) -> int:
        """Of the task, or of its newest renewal: chain seconds."""
        try:
            found = Signed[Renewal].model_validate_json(self._renewal_path(task).read_bytes())
        except (FileNotFoundError, ValidationError):  # a damaged one is asked for again
            return task.message.deadline
        return found.message.deadline

    def forget(self, task: Signed[Task]) -> None:
        self._path(task).unlink(missing_ok=True)
        self._renewal_path(task).unlink(missing_ok=True)
        sync_folder(self._folder)

    def open(self) -> list[Signed[Task]]:
        """What is remembered, the earliest deadline first."""
        paths = sorted(self._folder.glob("0x*.json"))
        found = [task for path in paths if (task := self._read(path)) is not None]
        return sorted(found, key=lambda task: (self.deadline(task), task.message.counter))

    def _read(self, path: Path) -> Signed[Task] | None:
        """The lease in `path`; a damaged one is dropped: the coordinator still knows it, and is asked for it."""
        try:
            return Signed[Task].model_validate_json(path.read_bytes())
        except ValidationError as error:
            get_logger().warning("lease.unreadable", file=str(path), detail=error.errors()[0]["msg"])
            path.unlink()
            return None
        except FileNotFoundError:  # another thread has just forgotten it
            return None

    def _path(self, task: Signed[Task]) -> Path:
        return self._folder / f"{task.message.id(self._domain)}.json"

    def _renewal_path(self, task: Signed[Task]) -> Path:
        return self._folder / f"{task.message.id(self._domain)}.renewal"
