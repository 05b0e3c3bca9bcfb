"""Files that are there whole or not at all, whatever is killed when.

In: bytes, at once or one after the other, and a path. Out: the file, durable before the call returns (temp file,
fsync, rename, fsync of the folder). `cache_folder` is for what can be had again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write `data` to `path`; a reader sees the old content or the new, never half. Raises OSError."""
    with atomic_file(path, mode) as file:
        file.write(data)


def write_new(path: Path, data: bytes, mode: int = 0o644) -> None:
    """The same for a path where nothing may be yet. Raises FileExistsError, however late the other file came."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(path).hardlink_to(temporary)  # unlike a rename it takes no file's place
    finally:
        Path(temporary).unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def atomic_file(path: Path, mode: int = 0o644) -> Iterator[BinaryIO]:
    """A file to write (and read back); it takes the place of `path` when the block ends, and is gone where it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # of a full disk the system says everything but where
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Where a user keeps what can be made or fetched again: `proofpool` in `$XDG_CACHE_HOME` or `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "proofpool"
