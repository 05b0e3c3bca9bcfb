"""DATA/process/: which process works on a data folder, from its first moment on, and what it does.

    lock          held while it runs, also while it still waits to join
    state.json    `WorkerState`, every few seconds and at its end

In: `Activity`. Out: the folder, which `proofpool worker status` reads; nothing of it is needed to go on after a kill.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from protocol.clock import Clock
from protocol.files import write_atomically
from protocol.lock import FolderLock
from protocol.telemetry import get_logger
from worker.activity import Activity, WorkerState

FOLDER, STATE_FILE = "process", "state.json"
WRITE_SECONDS = 5.0
STALE_SECONDS = 60.0
"""A running worker whose state is older hangs, or can't write."""


class StateFile:
    """Example: `with StateFile(config.data_dir, activity, clock): …`. Raises ConfigError where another worker runs."""

    def __init__(self, data_dir: Path, activity: Activity, clock: Clock) -> None:
        self._folder = data_dir / FOLDER
        self._activity = activity
        self._clock = clock
        self._lock = FolderLock(self._folder, "worker")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="state-file", daemon=True)

    def __enter__(self) -> StateFile:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stop.set()
        self._thread.join()
        self._write()
        self._lock.close()

    def _run(self) -> None:
        while not self._clock.wait(self._stop, WRITE_SECONDS):
            self._write()

    def _write(self) -> None:
        """A full disk must not end the work: the state is for people only."""
        try:
            write_atomically(self._folder / STATE_FILE, self._activity.state().model_dump_json().encode())
        except OSError as error:
            get_logger().warning("state.unwritten", why=str(error))


@dataclass(frozen=True)
class Process:
    """The worker of a data folder as seen from outside; `state` is the last that it, or the one before, has written."""

    is_running: bool
    state: WorkerState | None

    def is_stale(self, now: float) -> bool:
        return self.is_running and self.state is not None and now - self.state.written_time > STALE_SECONDS


def process_of(data_dir: Path) -> Process:
    """Changes nothing."""
    running = FolderLock.is_held(data_dir) or FolderLock.is_held(data_dir / FOLDER)
    try:
        state = WorkerState.model_validate_json((data_dir / FOLDER / STATE_FILE).read_bytes())
    except (FileNotFoundError, ValidationError):  # none was written, or by another version
        state = None
    return Process(running, state)
