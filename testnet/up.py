"""`proofpool testnet up`: a run from the banner to the summary.

In: a plan. Out: exit code 0 if the run did what it should, 1 otherwise; the summary on stdout with
`--json`, everything else on stderr. Whatever happens, no process of the run is left behind.
"""

from __future__ import annotations

import threading
from pathlib import Path

from rich.console import Console

from protocol.clock import Clock, SystemClock
from protocol.config import write_resolved
from protocol.errors import UsageError
from testnet.banner import banner
from testnet.closing import close
from testnet.evaluation import pass_rates
from testnet.plan import Plan
from testnet.run import Run
from testnet.summary import Summary, print_summary, summarise
from testnet.table import RunTable, Worker


def run_testnet(plan: Plan, run_dir: Path | None, *, as_json: bool, keep: bool) -> int:
    """One run; its exit code."""
    clock = SystemClock()
    run = Run(plan, _new_folder(run_dir), clock)
    write_resolved(plan, run.run_dir)
    console = Console(stderr=True)
    try:
        summary = _follow(run, clock, console)
        if as_json:
            print(summary.model_dump_json())
        else:
            print_summary(summary, console)
        if keep:
            console.print("Everything is still up; press Ctrl-C to end it.")
            threading.Event().wait()
    finally:
        run.stop()
    return 0 if summary.passed else 1


def _follow(run: Run, clock: Clock, console: Console) -> Summary:
    started = clock.now()
    console.print("starting the chain and the first roles …")
    run.start()
    console.print(banner(run), highlight=False)
    workers = [Worker(p.name, p.node.address, p.cheat) for p in run.accounts.providers]
    with RunTable(workers) as table:
        run.run_until_done(table.update)
    console.print("claims, audit, pass rates …")
    findings = close(run, clock)
    rates = pass_rates(run.site.relay_url, list(findings.releases), run.run_dir / "evaluation")
    return summarise(run, findings, rates, clock.now() - started)


def _new_folder(run_dir: Path | None) -> Path:
    """The run's own folder. Raises UsageError for one that holds something already."""
    if run_dir is None:
        runs = Path("runs")
        runs.mkdir(exist_ok=True)
        number = 1 + max((int(p.name) for p in runs.iterdir() if p.name.isdigit()), default=0)
        run_dir = runs / f"{number:04d}"
    if run_dir.exists() and any(run_dir.iterdir()):
        raise UsageError("a run needs a folder of its own", f"{run_dir} isn't empty", "name another with --run-dir")
    run_dir.mkdir(parents=True, exist_ok=True)
    return run_dir.resolve()
