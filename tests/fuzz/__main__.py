"""`python -m tests.fuzz --minutes 10 [--target NAME …]`: fuzz for a while and print what happened.

Each target runs in a process of its own, one after the other, for an equal part of the time, so that an input that
ends the process (in native code) is a finding like any other. Guided by coverage where atheris is installed.
Findings and new inputs stay in the folder that is printed; commit what is worth keeping to `corpus/NAME/`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

GRACE_SECONDS = 120
COLUMNS = "{:<20} {:>9} {:>9} {:>8} {:>9} {:>9} {:>9}"


def main() -> int:
    options = _parser().parse_args()
    if options.one is not None:
        return _run_here(options)
    from tests.fuzz.targets import TARGETS

    names = options.target or list(TARGETS)
    seconds = max(1, round(60 * options.minutes / len(names)))
    root = Path(tempfile.mkdtemp(prefix="proofpool-fuzz-"))
    print(f"{len(names)} targets, {seconds} s each, {_engine(options)}; folder {root}", flush=True)
    print(COLUMNS.format("target", "inputs", "inputs/s", "new", "findings", "slowest s", "rss MiB"), flush=True)
    reports = [_run_apart(name, seconds, root / name, options) for name in names]
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
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser


def _engine(options: argparse.Namespace) -> str:
    guided = not options.random and importlib.util.find_spec("atheris") is not None
    return "guided by coverage" if guided else "at random"


def _run_here(options: argparse.Namespace) -> int:
    if _engine(options) == "at random":
        from tests.fuzz.random_run import run_random
        from tests.fuzz.targets import TARGETS

        run_random(TARGETS[options.one], seconds=options.seconds, seed=options.seed, folder=options.folder)
    else:
        from tests.fuzz.guided_run import run_guided

        run_guided(options.one, options.seconds, options.folder, options.seed)
    return 0


def _run_apart(name: str, seconds: int, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The report of one target's process, printed as a line."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--seconds", str(seconds), "--folder", str(folder)]
    command += ["--seed", str(options.seed), *(["--random"] if options.random else [])]
    with (folder / "output.txt").open("wb") as output:
        ended = subprocess.run(command, stdout=output, stderr=output, timeout=seconds + GRACE_SECONDS, check=False)
    report = _report(folder, ended.returncode)
    rate = report["num_inputs"] / max(report["seconds"], 1e-9)
    print(
        COLUMNS.format(
            *(name, report["num_inputs"], f"{rate:.0f}", report["num_new"], len(report["findings"])),
            *(f"{report['slowest_seconds']:.3f}", report["peak_rss_mb"]),
        ),
        flush=True,
    )
    for finding in report["findings"]:
        print(f"    {finding}", flush=True)
    return report


def _report(folder: Path, returncode: int) -> dict[str, Any]:
    empty = {"num_inputs": 0, "seconds": 0.0, "slowest_seconds": 0.0, "findings": []}
    path = folder / "report.json"
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else empty
    if returncode:
        report["findings"] = [*report["findings"], f"the process ended with {returncode}: {folder}/output.txt"]
    corpus = folder / "corpus"
    is_new = [not path.name.startswith("seed-") for path in corpus.iterdir()] if corpus.is_dir() else []
    return report | {"num_new": sum(is_new), "peak_rss_mb": _statistic(folder, "peak_rss_mb")}


def _statistic(folder: Path, name: str) -> str:
    """A figure of libFuzzer's own."""
    for line in (folder / "output.txt").read_text(errors="replace").splitlines():
        if line.startswith(f"stat::{name}:"):
            return line.rpartition(" ")[2]
    return "-"


if __name__ == "__main__":
    sys.exit(main())
