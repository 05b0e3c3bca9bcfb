"""Resident memory of this process in bytes, torch's buffers included: Linux only, from /proc/self."""

from __future__ import annotations

import gc
import re
from pathlib import Path


def forget_peak() -> int:
    """Starts the peak anew; what is resident now."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return _read("VmRSS")


def peak() -> int:
    """The most that was resident since `forget_peak`."""
    return _read("VmHWM")


def _read(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, f"/proc/self/status has no {field}"
    return 1024 * int(found[1])
