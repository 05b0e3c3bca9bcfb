"""A role's process: started with a log of its own, ended by its own id, never outliving the testnet.

In: a command line. Out: a running process whose output is in a log file (`testnet/child.py`).
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from protocol.errors import ProofpoolError
from testnet.child import Child, spawn

ERROR = "error: "
MOST_RESTARTS = 8
"""Killed more often than that, a process has no chance on this machine."""

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}


class Process:
    """One child. `restarts` counts the times that it was started again; `niceness` is added to its parent's.

    `may_finish`: it ends by itself once its work is done, with exit code 0.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, niceness: int = 0, *, may_finish: bool = False
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.niceness = niceness
        self.may_finish = may_finish
        self.restarts = -1
        self._is_stopping = False
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Start, or start again after its end; output is appended to the log."""
        self.restarts += 1
        self._is_stopping = False
        self._child = spawn(self.command, self.log, os.environ | ONE_THREAD, niceness=self.niceness)

    @property
    def was_started(self) -> bool:
        return self._child is not None

    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def revive(self) -> bool:
        """Start it again where somebody else has killed it; whether that was so."""
        if self._child is None or self._is_stopping or (self._child.poll() or 0) >= 0:
            return False
        if self.restarts >= MOST_RESTARTS:
            raise ProofpoolError(
                f"{self.name} was killed again", f"signal {-self._child.returncode}", "is there enough memory?"
            )
        self.start()
        return True

    def check(self) -> None:
        """Raises ProofpoolError, with its last words, where the process has ended without being asked to."""
        if self._child is None or self._is_stopping or (code := self._child.poll()) is None:
            return
        if code == 0 and self.may_finish:
            return
        raise ProofpoolError(f"{self.name} ended with exit code {code}", self.last_words(), f"read {self.log}")

    def last_words(self) -> str:
        """The error that it ended with, in one line; else the last line of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        told = [number for number, line in enumerate(lines) if line.startswith(ERROR)]
        last = lines[told[-1] :] if told else lines[-1:]
        return "; ".join(last).removeprefix(ERROR) or "its log is empty"

    def kill(self) -> None:
        """As kill -9 does."""
        self._is_stopping = True
        if self._child is not None and self.is_running():
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()

    def ask_to_stop(self) -> None:
        """Ask once: to a worker a second signal means that the task at hand isn't to be finished."""
        if self._child is not None and self.is_running() and not self._is_stopping:
            self._child.terminate()
        self._is_stopping = True

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Ask it to end; insist once the time is up."""
        self.ask_to_stop()
        if self._child is None:
            return
        try:
            self._child.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()


def stop_all(processes: Sequence[Process], timeout_seconds: float = 10.0) -> None:
    """Ask all to end at once, then wait for each."""
    for process in processes:
        process.ask_to_stop()
    for process in processes:
        process.stop(timeout_seconds)
