"""A node as a child process: started, known to be ready by the line it prints, ended by its own id.

In: a command line and a log file. Out: a running process with a URL, which ends with the process (and thread)
that started it, even if that one is killed.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from protocol.clock import Clock
from protocol.errors import ChainError
from testnet.child import end, spawn

READY_SECONDS = 30.0
STOP_SECONDS = 5.0
POLL_SECONDS = 0.02


class NodeProcess:
    """A local chain that this process started.

    Example: `with NodeProcess("anvil", command, log_file, clock) as node: JsonRpc(node.url)`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_file: Path,
        clock: Clock,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it and wait until it listens. Raises ChainError where it ends, or isn't ready in time."""
        self.name = name
        self._clock = clock
        self._log_file = log_file
        log_file.unlink(missing_ok=True)  # what an earlier node said in it must not count
        self._process = spawn(command, log_file, environment, death_signal=signal.SIGTERM)
        try:
            self.url = self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """SIGTERM, then SIGKILL; returns when it's gone."""
        end(self._process, STOP_SECONDS)

    def _wait_until_ready(self) -> str:
        """The URL that the node says it listens at."""
        deadline, never = self._clock.now() + READY_SECONDS, threading.Event()
        while True:
            text = self._log_file.read_text(errors="replace")
            if found := re.search(r"listening on (?:http://)?(127\.0\.0\.1:\d+)\s", text, re.IGNORECASE):
                return f"http://{found[1]}"
            if not self.is_running() or self._clock.now() > deadline:
                state = "is not ready in time" if self.is_running() else f"ended with code {self._process.returncode}"
                last = (text.strip().splitlines() or ["no output"])[-1]
                raise ChainError(f"the local chain {state}", f"{self.name}: {last[:200]}", f"see {self._log_file}")
            self._clock.wait(never, POLL_SECONDS)


def python_environment() -> dict[str, str]:
    """This process's environment, with the modules that it can import itself."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
