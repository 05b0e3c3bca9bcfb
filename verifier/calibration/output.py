"""Where a calibration writes: the threshold file, and the unfinished run beside it.

In: `--out`, and what may be done with what lies there. Out: UsageError before anything is loaded or measured.
"""

from __future__ import annotations

from pathlib import Path

from protocol.errors import UsageError


def journal_of(out: Path) -> Path:
    """Where an unfinished run keeps what it has measured."""
    return out.with_name(f"{out.name}.unfinished")


def check_output(out: Path, *, overwrite: bool, resume: bool) -> None:
    """Raises UsageError where a finished file would be lost, or an unfinished run, without having been asked."""
    has_journal = journal_of(out).exists()
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
