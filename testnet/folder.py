"""The run folder: new, writable, on a disk with room.

In: the folder that was asked for, or none. Out: an empty folder of the run's own. What goes wrong with it is an error
in words, at the start or later.
"""

from __future__ import annotations

import errno
import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from protocol.errors import ProofpoolError, UsageError

ROOM_BYTES = 256 << 20
"""What a run should find at its start: weights in each role's folder, logs, database."""
LEAST_BYTES = 16 << 20
"""With less than this a run ends before its roles fail one by one."""
FULL = (errno.ENOSPC, errno.EDQUOT)


def new_folder(asked: Path | None) -> Path:
    """The folder, made. Raises UsageError for one that can't be a run's own, ProofpoolError for a full disk."""
    try:
        folder = _numbered(Path("runs")) if asked is None else asked
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError("a run needs a folder of its own", f"{folder} isn't empty", "name another with --run-dir")
        (folder / "logs").mkdir()
    except OSError as error:
        raise UsageError("the run folder can't be made", str(error), "name another with --run-dir") from error
    check_room(folder, ROOM_BYTES)
    return folder.resolve()


def check_room(folder: Path, least_bytes: int = LEAST_BYTES) -> None:
    """Raises ProofpoolError where the disk is (nearly) full."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < least_bytes:
        raise _full(f"{free_bytes >> 20} MiB free, {least_bytes >> 20} MiB needed", folder)


@contextmanager
def written_in(folder: Path) -> Iterator[None]:
    """Files of the run that can't be written are an error of it: raises ProofpoolError instead of OSError."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise _full(str(error), folder) from error
        if error.filename is not None:
            raise ProofpoolError("a file of the run can't be used", str(error), f"look at {folder}") from error
        raise


def _full(why: str, folder: Path) -> ProofpoolError:
    return ProofpoolError("the run folder's disk is full", why, f"make room, or name another than {folder} (--run-dir)")


def _numbered(runs: Path) -> Path:
    """`runs/0001`, or the first number past the newest that nobody else takes meanwhile."""
    runs.mkdir(exist_ok=True)
    newest = max((int(path.name) for path in runs.iterdir() if path.name.isdigit()), default=0)
    for number in itertools.count(newest + 1):
        folder = runs / f"{number:04d}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("numbers don't end")
