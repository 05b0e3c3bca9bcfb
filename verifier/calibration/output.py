"""Where a calibration writes: the threshold file, and the unfinished run beside it.

In: `--out`, and what may be done with what lies there. Out: UsageError before anything is loaded or measured.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from protocol.errors import UsageError


def journal_of(out: Path) -> Path:
    """Where an unfinished run keeps what it has measured."""
    return out.with_name(f"{out.name}.unfinished")


def check_output(out: Path, *, overwrite: bool, resume: bool) -> None:
    """Raises UsageError where a finished file would be lost, or an unfinished run, unasked; or one that is going on."""
    has_journal = journal_of(out).exists()
    if has_journal:
        hold(journal_of(out)).close()
    if has_journal and not resume:
        raise UsageError(
            "an earlier calibration wasn't finished", f"{journal_of(out)}", "go on with --resume, or delete it"
        )
    if out.is_dir():
        raise UsageError("the threshold file can't be written", f"{out} is a folder", "name a file with --out")
    if not out.exists() or overwrite or has_journal:
        return
    why = f"{out} is finished, there is nothing to resume" if resume else f"{out} is there already"
    raise UsageError(
        "a finished threshold file is never lost unasked", why, "name another with --out, or measure anew: --overwrite"
    )


def hold(path: Path) -> BinaryIO:
    """The file, locked; made where there was none. Raises UsageError where another process holds it."""
    file = path.open("a+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise UsageError(
            "another process is at this calibration", f"it holds {path}", "let it finish, or stop it first"
        ) from error
    if not path.exists() or not os.path.samestat(path.stat(), os.fstat(file.fileno())):
        file.close()  # whoever held it has just finished, and removed it
        raise UsageError("another process has just finished this calibration", f"{path} is gone", "look at its file")
    return file
