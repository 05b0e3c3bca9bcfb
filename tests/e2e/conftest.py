"""What the tests of whole testnets share: a run's log to ask, and processes that are left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Event = dict[str, Any]


@dataclass(frozen=True)
class History:
    """A run's log, event by event."""

    events: list[Event]

    def of(self, *types: str) -> list[Event]:
        return [event for event in self.events if event["type"] in types]

    def by(self, node: str, *types: str) -> list[Event]:
        return [event for event in self.of(*types) if event["data"]["node"] == node]

    def payments_wei(self, size: int | None = None) -> int:
        """All that was ever paid out by the log's first `size` events."""
        return sum(int(wei) for e in self.events[:size] for _, wei in e["data"].get("payments", []))


@pytest.fixture(scope="session")
def read_history() -> Callable[[Path], History]:
    """The log as the testnet kept it in its run folder."""

    def read(run_dir: Path) -> History:
        return History([json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()])

    return read


@pytest.fixture(scope="session")
def left_behind() -> Callable[[Path], list[str]]:
    """Command lines of processes that write into a run folder; all of a run's do, its chain included."""

    def find(run_dir: Path) -> list[str]:
        return [_command(process) for process in Path("/proc").glob("[0-9]*") if _writes_into(process, run_dir)]

    return find


def _writes_into(process: Path, run_dir: Path) -> bool:
    try:
        return (process / "fd" / "1").readlink().is_relative_to(run_dir)
    except OSError:
        return False


def _command(process: Path) -> str:
    return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
