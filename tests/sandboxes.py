"""What tests ask before they run programs in a sandbox: a machine without bubblewrap skips, CI doesn't."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.sandbox.bubblewrap import sandbox_fault


def require_sandbox() -> None:
    """Skips with the reason where this machine can't make a sandbox; fails where `CI` is set."""
    fault = sandbox_fault()
    if fault is None:
        return
    if os.environ.get("CI"):
        raise fault
    pytest.skip(str(fault))


def descendants() -> set[int]:
    """Processes below this one."""
    found, todo = set[int](), [os.getpid()]
    while todo:
        for task in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            try:
                below = {int(word) for word in task.read_text().split()} - found
            except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                continue
            found |= below
            todo += below
    return found
