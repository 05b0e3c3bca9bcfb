"""Network namespaces by name: made, entered, and removed, those of processes that were killed as well."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path("/run/netns")
PREFIX = "proofpool"
CLONE_NEWNET = 0x40000000


def ip(*commands: str, namespace: str | None = None, program: str = "ip") -> None:
    """Commands of `ip` (or `tc`), all in one process. Raises CalledProcessError where one of them fails."""
    inside = [] if namespace is None else ["-netns", namespace]
    text = "\n".join(commands)
    subprocess.run([program, *inside, "-batch", "-"], input=text, text=True, check=True, capture_output=True)


def enter(name: str) -> None:
    """This thread, and those that it starts, see that namespace's network only. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    with (FOLDER / name).open() as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, f"can't enter {name}: {os.strerror(number)}")


def own(name: str) -> str:
    """A name that says whose process made it."""
    return f"{PREFIX}-{os.getpid()}-{name}"


def sweep() -> None:
    """Remove those whose process is gone without having removed them."""
    for path in FOLDER.glob(f"{PREFIX}-*-*") if FOLDER.exists() else ():
        process = path.name.split("-")[1]
        if process.isdigit() and not Path("/proc", process).exists():
            remove([path.name])


def remove(names: Sequence[str]) -> None:
    """Their devices and links go with them; one that isn't there is no fault."""
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
