"""`python -m tests.fuzz --minutes 10 [--target NAME …]`: fuzz for a while and print what happened.

Each target runs in a process of its own, one after the other, for an equal part of the time, so that an input that
ends the process (in native code) is a finding like any other. Guided by coverage where atheris is installed.
Findings and new inputs stay in the folder that is printed; commit what is worth keeping to `corpus/NAME/`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.fuzz.target import Target

GRACE_SECONDS = 120
POLL_SECONDS = 0.2
COLUMNS = "{:<20} {:>9} {:>9} {:>6} {:>9} {:>10} {:>8}"

Run = Callable[[Target, int, Path, int], object]


def main() -> int:
    options = _parser().parse_args()
    engine, targets, run = _engine(options)
    names = options.target or list(targets)
    seconds = max(1, round(60 * options.minutes / len(names)))
    root = Path(tempfile.mkdtemp(prefix="proofpool-fuzz-"))
    print(f"{len(names)} targets, {seconds} s each, {engine}; folder {root}", flush=True)
    print(COLUMNS.format("target", "inputs", "inputs/s", "new", "findings", "slowest s", "rss MiB"), flush=True)
    reports = []
    for name in names:
        folder = root / name
        folder.mkdir()
        ended = _apart(partial(run, targets[name], seconds, folder, options.seed), folder, seconds + GRACE_SECONDS)
        reports.append(_report(folder, ended))
        _print(name, reports[-1])
    num_findings = sum(len(report["findings"]) for report in reports)
    total = sum(report["num_inputs"] for report in reports)
    print(f"{total} inputs in {sum(report['seconds'] for report in reports):.0f} s, {num_findings} findings")
    return 1 if num_findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz every parser.")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", action="store_true", help="without coverage even where atheris is installed")
    return parser


def _engine(options: argparse.Namespace) -> tuple[str, dict[str, Target], Run]:
    if not options.random and importlib.util.find_spec("atheris") is not None:
        from tests.fuzz.guided_run import instrumented_targets, run_guided

        return "guided by coverage", instrumented_targets(), run_guided
    from tests.fuzz.random_run import run_random
    from tests.fuzz.targets import TARGETS

    return (
        "at random",
        TARGETS,
        lambda target, seconds, folder, seed: run_random(target, seconds=seconds, folder=folder, seed=seed),
    )


def _apart(run: Callable[[], object], folder: Path, max_seconds: float) -> int:
    """Run in a child process, its output in the folder; how it ended, as `os.waitpid` says."""
    child = os.fork()
    if child == 0:
        output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        run()
        os._exit(0)
    deadline = time.monotonic() + max_seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        time.sleep(POLL_SECONDS)


def _report(folder: Path, status: int) -> dict[str, Any]:
    """What the child left: counts, findings, and how it ended if that wasn't well."""
    empty = {"num_inputs": 0, "seconds": 0.0, "slowest_seconds": 0.0, "findings": []}
    path = folder / "report.json"
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else empty
    if status:
        report["findings"] = [*report["findings"], f"the process ended with status {status}: {folder}/output.txt"]
    corpus = folder / "corpus"
    is_new = [not path.name.startswith("seed-") for path in corpus.iterdir()] if corpus.is_dir() else []
    return report | {"num_new": sum(is_new), "peak_rss_mb": _statistic(folder, "peak_rss_mb")}


def _print(name: str, report: dict[str, Any]) -> None:
    rate = report["num_inputs"] / max(report["seconds"], 1e-9)
    counts = (name, report["num_inputs"], f"{rate:.0f}", report["num_new"], len(report["findings"]))
    print(COLUMNS.format(*counts, f"{report['slowest_seconds']:.3f}", report["peak_rss_mb"]), flush=True)
    for finding in report["findings"]:
        print(f"    {finding}", flush=True)


def _statistic(folder: Path, name: str) -> str:
    """A figure of libFuzzer's own."""
    for line in (folder / "output.txt").read_text(errors="replace").splitlines():
        if line.startswith(f"stat::{name}:"):
            return line.rpartition(" ")[2]
    return "-"


if __name__ == "__main__":
    sys.exit(main())
