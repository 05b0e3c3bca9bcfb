"""A role's data folder belongs to one process at a time: two on the same state would send everything twice.

In: a folder. Out: a lock that the process holds until it ends, however it ends; or ConfigError where another has it.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import TracebackType

from protocol.errors import ConfigError

LOCK_FILE = "lock"


class FolderLock:
    """Example: `with FolderLock(config.data_dir, "verifier"): …`. Raises ConfigError."""

    def __init__(self, folder: Path, role: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / LOCK_FILE).open("w")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise ConfigError(
                f"another {role} uses this data folder", str(folder), "stop it, or give this one a folder of its own"
            ) from error

    @staticmethod
    def is_held(folder: Path) -> bool:
        """Whether a process has it now. Asks by taking it for a moment, shared: many may ask at once."""
        if not (path := folder / LOCK_FILE).exists():
            return False
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another process use the folder."""
        self._file.close()
