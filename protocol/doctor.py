"""`proofpool doctor`: is this installation able to do its job; each finding comes with its fix.

In: this machine. Out: a line a check, `--json` for one document, exit code 1 where something must be fixed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from protocol.engines.vllm import library
from protocol.errors import ConfigError
from protocol.plain import plain
from protocol.sandbox.bubblewrap import sandbox_fault

ROOMS = ("contracts", "protocol", "coordinator", "worker", "verifier", "trainer", "testnet")
EXTRAS = {
    "torch": "worker, verifier, trainer",
    "tokenizers": "worker, verifier, trainer",
    "reasoning_gym": "worker, verifier, trainer",
    "math_verify": "worker, verifier, trainer (the environment `math`)",
    "fastapi": "coordinator",
    "sqlalchemy": "coordinator",
    "eth_tester": "testnet (only where anvil isn't to be had)",
}
FREE_GIB = 2


@dataclass(frozen=True)
class Finding:
    """One check: ok, or a warning or error with its fix."""

    check: str
    status: str
    detail: str
    fix: str = ""


@dataclass(frozen=True)
class DoctorReport:
    """What `proofpool doctor --json` prints."""

    findings: tuple[Finding, ...]
    schema_version: int = 1


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check this installation; each finding with its fix."""
    found = tuple(findings())
    if as_json:
        print(json.dumps(asdict(DoctorReport(found))))
    else:
        for finding in found:
            print_finding(finding)
    if any(finding.status == "error" for finding in found):
        raise typer.Exit(1)


def findings() -> Iterator[Finding]:
    """All checks, in the order in which they are printed."""
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _python,
        _rooms,
        _extras,
        _vllm,
        sandbox_findings,
        _disk,
        _threads,
    )
    for check in checks:
        yield from check()


def package_findings() -> Iterator[Finding]:
    """Whether Python and our own packages are what they should be: of interest to every role."""
    yield from _python()
    yield from _rooms()


def print_finding(finding: Finding) -> None:
    print(plain(f"{_MARKS[finding.status]} {finding.check}: {finding.detail}"))
    if finding.fix:
        print(plain(f"    fix: {finding.fix}"))


_MARKS = {"ok": "✓", "warning": "!", "error": "✗"}


def _python() -> Iterator[Finding]:
    yield Finding("python", "ok", ".".join(map(str, sys.version_info[:3])))


def _rooms() -> Iterator[Finding]:
    """Other distributions own packages called worker, trainer or verifier: whose are these?"""
    home = Path(__file__).resolve().parents[1]
    for room in ROOMS:
        spec = importlib.util.find_spec(room)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin is None:
            yield Finding(f"package {room}", "error", "not found", "install proofpool in a fresh virtual environment")
        elif home not in origin.parents:
            yield Finding(
                f"package {room}",
                "error",
                f"is {origin}, not under {home}",
                "use a fresh virtual environment for proofpool",
            )
    yield Finding("proofpool", "ok", f"{installed_version('proofpool')} in {home}")


def _extras() -> Iterator[Finding]:
    for module, roles in EXTRAS.items():
        if importlib.util.find_spec(module) is None:
            extra = roles.split(" ")[0].rstrip(",")
            yield Finding(module, "warning", f"missing; needed by {roles}", f"pip install 'proofpool[{extra}]'")
        else:
            yield Finding(module, "ok", installed_version(module.replace("_", "-")))


def _vllm() -> Iterator[Finding]:
    if library.found() is None:
        yield Finding("vllm", "ok", 'not installed; a worker with engine = "vllm" needs it')
        return
    try:
        distribution, number = library.require_installed()
    except ConfigError as error:
        yield Finding("vllm", "error", f"{error.what}: {error.why}", error.todo)
    else:
        yield Finding("vllm", "ok", f"{distribution} {number}")


def sandbox_findings() -> Iterator[Finding]:
    """Whether programs can be run here: of interest to whoever judges code."""
    fault = sandbox_fault()
    if fault is None:
        yield Finding("sandbox", "ok", "bubblewrap can run programs of the environment code")
    else:
        detail = f"{fault.what}: {fault.why}; needed by the environment code only"
        yield Finding("sandbox", "warning", detail, fault.todo)


def _disk() -> Iterator[Finding]:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free / 2**30
    status = "ok" if free >= FREE_GIB else "warning"
    fix = "" if status == "ok" else "free some space, or set TMPDIR to another disk"
    yield Finding("disk", status, f"{free:.1f} GiB free under {folder}", fix)


def _threads() -> Iterator[Finding]:
    yield Finding("cores", "ok", f"{len(os.sched_getaffinity(0))} usable")


def installed_version(distribution: str) -> str:
    """What pip knows of it, in words where that is nothing."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed as a distribution"
