"""How much of this machine the worker may use: tasks at once, disk, memory, and how long a stop may take.

In: configuration. Out: `Bounds`; `check` raises OutOfRoom before work is taken on that there is no room for. What is
leased is finished all the same.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import ConfigError, NotEligible
from worker.config import WorkerConfig

STATM = Path("/proc/self/statm")
"""Linux: pages of this process, the second number those in memory (proc(5))."""


class OutOfRoom(NotEligible):
    """This machine has too little disk or memory left to take on more work. It is waited out."""


@dataclass(frozen=True)
class Bounds:
    """Example: `Bounds(min_free_disk_bytes=1 << 30).check(data_dir)`. Without arguments nothing is bounded."""

    max_tasks: int = 1
    drain_seconds: float = 600.0
    min_free_disk_bytes: int = 0
    max_memory_bytes: int | None = None

    @classmethod
    def of(cls, config: WorkerConfig) -> Bounds:
        """Raises ConfigError where memory is to be bounded and can't be measured."""
        if config.max_memory_bytes is not None and not STATM.exists():
            raise ConfigError(
                "this system doesn't tell how much memory a process uses",
                f"there is no {STATM}",
                "leave out `max_memory_bytes`, and bound the process from outside",
            )
        return cls(
            max_tasks=config.max_tasks,
            drain_seconds=config.drain_seconds,
            min_free_disk_bytes=config.min_free_disk_bytes,
            max_memory_bytes=config.max_memory_bytes,
        )

    def check(self, folder: Path) -> None:
        """Raises OutOfRoom where the disk of `folder` or the memory leaves no room for another task."""
        self.check_disk(folder)
        if self.max_memory_bytes is not None and (used := memory_bytes()) > self.max_memory_bytes:
            raise OutOfRoom(
                "the worker uses more memory than it may",
                f"{_mib(used)} in use, `max_memory_bytes` is {_mib(self.max_memory_bytes)}",
                "lower `max_batch` or `max_tasks`, or raise `max_memory_bytes`; it goes on once there is room",
            )

    def check_disk(self, folder: Path) -> None:
        """Raises OutOfRoom where the disk of `folder` has less left than it should."""
        free = shutil.disk_usage(folder).free
        if free < self.min_free_disk_bytes:
            raise OutOfRoom(
                "the disk is nearly full",
                f"{_mib(free)} free at {folder}, `min_free_disk_bytes` is {_mib(self.min_free_disk_bytes)}",
                "make room on the disk of data_dir, or set `min_free_disk_bytes` lower; it goes on once there is room",
            )


def memory_bytes() -> int:
    """What this process holds in memory (Linux)."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 20):.0f} MiB"
