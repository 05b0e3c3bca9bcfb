"""A node as a child process: started, known to be ready by the line it prints, ended by its own id.

In: a command line and a log file. Out: a running process with a URL, which ends with the process (and thread)
that started it, even if that one is killed.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from protocol.clock import Clock
from protocol.errors import ChainError

READY_SECONDS = 30.0
STOP_SECONDS = 5.0
POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel end this process when its parent's thread ends (Linux; elsewhere the parent must do it)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


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
        log_file.parent.mkdir(parents=True, exist_ok=True)
        with log_file.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C in the terminal is its parent's to handle
                env=dict(environment) if environment is not None else None,
                preexec_fn=die_with_parent,
            )
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
        if not self.is_running():
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

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
