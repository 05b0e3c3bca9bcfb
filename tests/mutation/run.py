"""Whether the contracts' tests notice a mutant: in a copy of the folder, so that many can be tried side by side.

In: the contracts' folder, a `Mutant`. Out: an `Outcome`. forge compiles the copy anew and stops at the first failure.
"""

from __future__ import annotations

import shutil
import subprocess
from enum import StrEnum
from pathlib import Path

from tests.mutation.mutant import Mutant

_COPIED = ("*.sol", "foundry.toml", "solc.cjs")
_COMPILER_REFUSES = "Compiler run failed"
_TESTS_FAIL = ("Failing tests", "Encountered")


class Outcome(StrEnum):
    """`invalid` mutants don't compile and count for nothing."""

    KILLED = "killed"
    SURVIVED = "survived"
    INVALID = "invalid"


def copy_contracts(contracts: Path, folder: Path) -> None:
    """Sources and tests; packages by a link, and what is compiled already by a copy."""
    for pattern in _COPIED:
        for path in contracts.glob(pattern):
            shutil.copy2(path, folder / path.name)
    shutil.copytree(contracts / "test", folder / "test", dirs_exist_ok=True)
    if (contracts / "build").is_dir():
        shutil.copytree(contracts / "build", folder / "build", dirs_exist_ok=True)
    (folder / "node_modules").symlink_to((contracts / "node_modules").resolve())


def try_mutant(folder: Path, mutant: Mutant, seconds: float) -> tuple[Outcome, str]:
    """What the tests in a copied folder say, and the first test that fails. A run that is too slow is a failed one.

    Raises RuntimeError where forge ends in a way that is neither.
    """
    path = folder / mutant.file
    source = path.read_text()
    path.write_text(mutant.apply(source))
    try:
        return _tested(folder, seconds)
    finally:
        path.write_text(source)


def _tested(folder: Path, seconds: float) -> tuple[Outcome, str]:
    forge = folder / "node_modules" / ".bin" / "forge"
    command = [str(forge), "test", "--offline", "--fail-fast"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return Outcome.KILLED, f"no answer within {seconds:.0f} s"
    said = done.stdout + done.stderr
    if done.returncode == 0:
        return Outcome.SURVIVED, ""
    if _COMPILER_REFUSES in said:
        return Outcome.INVALID, ""
    if any(mark in said for mark in _TESTS_FAIL):
        failing = next((line.strip() for line in said.splitlines() if line.lstrip().startswith("[FAIL")), "a test")
        return Outcome.KILLED, failing[:200]
    raise RuntimeError(f"forge ended with {done.returncode}: {said[-500:]}")
