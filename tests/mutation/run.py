"""Whether the contracts' tests notice a mutant: in a copy of the folder, laid out so that little is compiled for each.

In: the contracts' folder, a `Mutant`. Out: an `Outcome`. Tests are linked to the contracts at run time and nothing is
optimized, so that a mutant costs the compilation of the contracts that it is a part of, and of no test.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from enum import StrEnum
from pathlib import Path

from tests.mutation.mutant import Mutant

_SETTINGS = {
    "FOUNDRY_SRC": "src",
    "FOUNDRY_DYNAMIC_TEST_LINKING": "true",
    "FOUNDRY_OPTIMIZER": "false",
    "FOUNDRY_CODE_SIZE_LIMIT": "200000",  # code that isn't optimized is larger than a chain allows
    "FOUNDRY_GAS_LIMIT": "5000000000",  # of one test: a mutant that loops for ever ends
    "FOUNDRY_INVARIANT_RUNS": "4",
    "FOUNDRY_INVARIANT_DEPTH": "40",
}
# Gas is that of optimized code. Everything else runs unfiltered: a filter would leave contracts as they were before.
_LEFT_OUT = ("Gas.t.sol", "EpochGas.t.sol")
_IMPORT = re.compile(r'"((?:\.\./)+)([A-Z]\w*\.sol)"')
_COMPILER_REFUSES = "Compiler run failed"
_TESTS_FAIL = ("Failing tests", "Encountered")


class Outcome(StrEnum):
    """`invalid` mutants don't compile and count for nothing."""

    KILLED = "killed"
    SURVIVED = "survived"
    INVALID = "invalid"


def copy_contracts(contracts: Path, folder: Path) -> None:
    """Sources into src/, tests into test/, packages by a link."""
    (folder / "src").mkdir()
    for path in contracts.glob("*.sol"):
        shutil.copy2(path, folder / "src" / path.name)
    for name in ("foundry.toml", "solc.cjs", "forge.cjs"):
        shutil.copy2(contracts / name, folder / name)
    shutil.copytree(contracts / "test", folder / "test", ignore=shutil.ignore_patterns(*_LEFT_OUT))
    for path in (folder / "test").rglob("*.sol"):
        path.write_text(_IMPORT.sub(r'"\1src/\2"', path.read_text()))
    (folder / "node_modules").symlink_to((contracts / "node_modules").resolve())


def try_unchanged(folder: Path, seconds: float) -> None:
    """Compiles everything. Raises RuntimeError where the tests fail before anything was changed."""
    outcome, by = _tested(folder, seconds)
    if outcome is not Outcome.SURVIVED:
        raise RuntimeError(f"without a mutant: {outcome} {by}")


def try_mutant(folder: Path, mutant: Mutant, seconds: float) -> tuple[Outcome, str]:
    """What the tests in a copied folder say, and the first test that fails. A run that is too slow is a failed one.

    Raises RuntimeError where forge ends in a way that is neither.
    """
    path = folder / "src" / mutant.file
    source = path.read_text()
    path.write_text(mutant.apply(source))
    try:
        return _tested(folder, seconds)
    finally:
        path.write_text(source)


def _tested(folder: Path, seconds: float) -> tuple[Outcome, str]:
    command = ["node", "forge.cjs", "test", "--offline", "--fail-fast"]
    environment = os.environ | _SETTINGS
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
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
