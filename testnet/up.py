"""`proofpool testnet up`: a run from the banner to the summary.

In: a plan. Out: exit code 0 if the run did what it should, 1 otherwise; the summary on stdout with `--json` and in
the run folder, everything else on stderr. Whatever happens, no process of the run is left behind; SIGTERM ends a run
as Ctrl-C does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from protocol.clock import Clock, SystemClock
from protocol.config import write_resolved
from protocol.files import write_atomically
from testnet.banner import banner
from testnet.checking import check_task
from testnet.closing import close
from testnet.evaluation import pass_rates
from testnet.folder import new_folder, written_in
from testnet.hints import live_commands
from testnet.plan import Plan
from testnet.run import Run
from testnet.stage import stage
from testnet.summary import Summary, print_lines, print_summary, summarise
from testnet.table import RunTable, Worker


def run_testnet(plan: Plan, asked_folder: Path | None, *, as_json: bool, keep: bool) -> int:
    """One run; its exit code."""
    clock, console = SystemClock(), Console(stderr=True)
    with interrupted_by_sigterm():
        check_task(plan)
        folder = new_folder(asked_folder)
        run = Run(plan, folder, clock)
        try:
            with written_in(folder):
                summary = _follow(run, clock, console, keep=keep)
            _tell(summary, console, as_json=as_json)
            if keep:
                _wait_for_the_user(run, summary, console)
        except KeyboardInterrupt:
            console.print("interrupted: ending every process of the run …")
            raise
        finally:
            run.stop()
    return 0 if summary.passed else 1


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt in here, as Ctrl-C does; a second one as well."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _follow(run: Run, clock: Clock, console: Console, *, keep: bool) -> Summary:
    """Without `keep` nobody is going to challenge anything any more, so what is earned is paid at once."""
    write_resolved(run.plan, run.run_dir)
    with stage("chain, contracts and the first roles", console, clock):
        run.start()
    print_lines(banner(run).splitlines(), console)
    workers = [Worker(p.name, p.node.address, p.cheat) for p in run.accounts.providers]
    with RunTable(workers) as table:
        run.run_until_done(table.update, is_kept=keep)
    with stage("claims and audit", console, clock):
        findings = close(run, clock, pass_windows=not keep)
    with stage("pass rates of the first and the last weights", console, clock):
        folder = run.run_dir / "evaluation"
        rates = pass_rates(run.site.relay_url, list(findings.releases), folder, run.rules, run.plan.num_held_back)
    summary = summarise(run, findings, rates, run.seconds)
    write_atomically(run.run_dir / "summary.json", summary.model_dump_json(indent=2).encode() + b"\n")
    return summary


def _tell(summary: Summary, console: Console, *, as_json: bool) -> None:
    if as_json:
        print(summary.model_dump_json(), flush=True)
    else:
        print_summary(summary, console)


def _wait_for_the_user(run: Run, summary: Summary, console: Console) -> None:
    """Until Ctrl-C."""
    urls = (run.site.coordinator_url, run.node.url, run.genesis.contracts.ledger)
    console.print("\nEverything is still up; press Ctrl-C to end it. Meanwhile:")
    print_lines(live_commands(summary.audited[0], *urls), console)
    threading.Event().wait()
