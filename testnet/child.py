"""Child processes that never outlive the testnet: a node of the chain, a role.

In: a command line and a log file. Out: a running child in a process group of its own (Ctrl-C in the terminal is the
testnet's to handle), which the kernel ends when the thread that started it ends (PR_SET_PDEATHSIG, Linux).
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1

Child = subprocess.Popen[bytes]


def spawn(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    *,
    niceness: int = 0,
    death_signal: signal.Signals = signal.SIGKILL,
) -> Child:
    """Start a child whose output is appended to `log`; `niceness` is added to its parent's."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment) if environment is not None else None,
            process_group=0,
            preexec_fn=functools.partial(_prepare, niceness, death_signal),
        )


def end(child: Child, timeout_seconds: float) -> None:
    """Ask it to end, and insist once the time is up; returns when it's gone."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def die_with_parent(death_signal: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel end this process when its parent's thread ends (Linux; elsewhere the parent must do it)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal)


def _prepare(niceness: int, death_signal: signal.Signals) -> None:
    """Runs in the child, before its program."""
    os.nice(niceness)
    die_with_parent(death_signal)
