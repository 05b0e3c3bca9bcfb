"""Files on their way in, piece by piece: a cut line costs a piece and no file.

In: pieces that each say where they begin. Out: how much is here, durable before it is said, or `storage_full` with
nothing kept. A task has one such file, whichever submission it is for: a node can have no more of them than leases.
Who may send pieces is decided in `coordinator/partial.py`.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from coordinator.blobs import FULL
from protocol.errors import Rejected
from protocol.files import sync_folder
from protocol.reasons import RejectReason


class PieceStore:
    """A folder of files that aren't whole yet.

    Example: `store.append(task_id, submission_id, 0, data) == len(data)`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def num_bytes(self, task_id: str, submission_id: str) -> int:
        """How much of the submission's file is here."""
        path = self._path(task_id, submission_id)
        return path.stat().st_size if path.exists() else 0

    def append(self, task_id: str, submission_id: str, offset: int, piece: bytes) -> int:
        """Keep `piece` if it begins where the file ends by now, else nothing; how much is here afterwards.

        Another submission's file for the same task goes. Raises Rejected(STORAGE_FULL).
        """
        with self._lock:
            path = self._path(task_id, submission_id)
            for other in self._files(task_id):
                if other != path:
                    other.unlink()
            if offset == self.num_bytes(task_id, submission_id):
                self._write(path, offset, piece)
            return self.num_bytes(task_id, submission_id)

    def read(self, task_id: str, submission_id: str) -> bytes:
        """What is here by now; nothing, where nothing came."""
        path = self._path(task_id, submission_id)
        return path.read_bytes() if path.exists() else b""

    def drop(self, task_id: str) -> None:
        """Forget what came for this task."""
        with self._lock:
            for path in self._files(task_id):
                path.unlink()

    def tasks(self) -> set[str]:
        """Tasks with a file here."""
        return {path.name.partition(".")[0] for path in self._files("0x")}

    def _write(self, path: Path, offset: int, piece: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            try:
                file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                os.ftruncate(file.fileno(), offset)
                if error.errno not in FULL:
                    raise
                raise Rejected(
                    RejectReason.STORAGE_FULL, error.strerror or "no space left", value=f"{len(piece)} bytes"
                ) from error
        sync_folder(self._folder)

    def _files(self, prefix: str) -> list[Path]:
        return list(self._folder.glob(f"{prefix}*"))

    def _path(self, task_id: str, submission_id: str) -> Path:
        return self._folder / f"{task_id}.{submission_id}"
