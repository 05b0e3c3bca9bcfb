"""What the kernel says a process has used: time on a processor, time in a queue for one, and address space.

In: a process id. Out: seconds and bytes; zeros once it is gone. Nothing within the process can change these.
Source: Linux, Documentation/filesystems/proc.rst and Documentation/scheduler/sched-stats.rst.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
NANO = 1e-9
PEAK_LINE = re.compile(r"^VmPeak:\s+(\d+) kB$", re.MULTILINE)


def first_thread_seconds(pid: int) -> float:
    """CPU time of a process's first thread, to the nanosecond."""
    return _schedule(f"/proc/{pid}/schedstat")[0]


def cpu_seconds(pid: int) -> float:
    """CPU time, user and system, of all its threads, ended ones too; to a tick (10 ms)."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def queued_seconds(pid: int) -> float:
    """How long its threads would have run, had there been a processor for them."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(_schedule(f"{task}/schedstat")[1] for task in tasks)


def peak_bytes(pid: int) -> int:
    """The most address space that it had."""
    found = PEAK_LINE.search(_read(f"/proc/{pid}/status"))
    return int(found[1]) << 10 if found else 0


def _schedule(path: str) -> tuple[float, float]:
    fields = _read(path).split()
    return (int(fields[0]) * NANO, int(fields[1]) * NANO) if fields else (0.0, 0.0)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
