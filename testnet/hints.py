"""Command lines to paste: what to look at while a run is up, and what to check once it is over.

In: addresses, ids, paths. Out: lines that work from the current folder as they stand.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def program(arguments: Sequence[str] = sys.argv) -> str:
    """How this program is called here: by name where the shell would find it, else by its path."""
    called = Path(arguments[0])
    if called.name != "proofpool":
        return f"{_quoted(Path(sys.executable))} -m protocol.cli"
    on_path = shutil.which("proofpool")
    is_found = on_path is not None and Path(on_path).resolve() == called.resolve()
    return "proofpool" if is_found else _quoted(called)


def offline_commands(submission_ids: Iterable[str], bundles: Path, trusted_head: str) -> list[str]:
    """Check kept bundles against a log head, with nothing running."""
    return [
        f"{program()} audit verify {submission_id} --bundle {_quoted(bundles / f'{submission_id}.json')}"
        f" --trusted-head {trusted_head}"
        for submission_id in submission_ids
    ]


def live_commands(submission_id: str, coordinator_url: str, chain_url: str, ledger: str) -> list[str]:
    """Look at a run that is up, and check it against its chain."""
    chain = f"--coordinator {coordinator_url} --chain {chain_url} --ledger {ledger}"
    return [
        f"{program()} trace {submission_id} --coordinator {coordinator_url}",
        f"{program()} audit verify {submission_id} {chain}",
        f"{program()} audit money {chain}",
    ]


def _quoted(path: Path) -> str:
    """For a shell, and short where it lies below the current folder."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path))
