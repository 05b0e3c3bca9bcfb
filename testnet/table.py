"""The live table of a run, on a terminal; elsewhere a line for each change, and one every 30 s without any.

In: a `Tally` and the step figures of the trainer. Out: text on stderr, since stdout is for data.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from testnet.arrivals import VersionArrivals, saved_share, told
from testnet.tally import Tally

STEPS_SHOWN = 6
VERSIONS_SHOWN = 3
REPORT_SECONDS = 30.0


@dataclass(frozen=True)
class Worker:
    """How a worker is called in the table."""

    name: str
    address: str
    cheat: str | None


@dataclass
class Progress:
    """What the table shows: the tally, the trainer's figures, and what is waited for."""

    tally: Tally
    num_steps: int
    seconds: float = 0.0
    figures: list[Mapping[str, Any]] = field(default_factory=list)
    waiting: str = ""
    waiting_seconds: float = 0.0
    restarted: list[str] = field(default_factory=list)
    """Processes that were killed and started again."""
    versions: Sequence[VersionArrivals] = ()
    """How policy versions reached the workers."""


class RunTable:
    """A context that redraws on `update`."""

    def __init__(self, workers: list[Worker], stream: TextIO = sys.stderr) -> None:
        self.workers = workers
        self.console = Console(file=stream)
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        self._last_line = ""
        self._last_seconds = 0.0
        self._num_restarted = 0
        self._num_told = 0

    def __enter__(self) -> RunTable:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *details: object) -> None:
        if self._live:
            self._live.stop()

    def update(self, progress: Progress) -> None:
        for name in progress.restarted[self._num_restarted :]:
            self._print(progress.seconds, f"{name} was killed, and is started again")
        self._num_restarted = len(progress.restarted)
        if self._live:
            self._live.update(self._picture(progress), refresh=True)
            return
        line = f"{summary_line(progress)}  waiting for {progress.waiting}"
        if line != self._last_line:
            self._last_line = line
            self._print(progress.seconds, line)
            self._tell_arrivals(progress)
        elif progress.seconds - self._last_seconds >= REPORT_SECONDS:
            self._print(progress.seconds, _waiting_line(progress))

    def _tell_arrivals(self, progress: Progress) -> None:
        """Of each version once, when the next one is announced: by then workers have it, or skip it."""
        for version in progress.versions[self._num_told : -1]:
            self._print(progress.seconds, f"weights {told(version)}")
        self._num_told = max(self._num_told, len(progress.versions) - 1)

    def _print(self, seconds: float, line: str) -> None:
        self._last_seconds = seconds
        self.console.print(f"[{seconds:5.0f} s] {line}", markup=False, highlight=False, soft_wrap=True)

    def _picture(self, progress: Progress) -> Group:
        head = Text(f"TESTNET  {progress.seconds:.0f} s  {summary_line(progress)}", style="bold cyan")
        waiting = Text(_waiting_line(progress), style="dim")
        return Group(head, self._workers(progress.tally), _steps(progress), _versions(progress), waiting)

    def _workers(self, tally: Tally) -> Table:
        table = Table(box=None, pad_edge=False)
        for column in ("worker", "received", "accepted", "rejected", "earned (credits)", "standing"):
            table.add_column(column, justify="left" if column in ("worker", "standing") else "right")
        for worker in self.workers:
            node = tally.node(worker.address)
            reasons = ", ".join(f"{count} {reason}" for reason, count in node.rejected.items())
            table.add_row(
                worker.name + (f" ({worker.cheat})" if worker.cheat else ""),
                str(node.received),
                str(node.accepted),
                reasons or "0",
                f"{node.earned_wei / 10**18:.3f}",
                "rejected" if node.rejected and not node.accepted else "ok" if node.accepted else "–",
            )
        return table


def summary_line(progress: Progress) -> str:
    """What changed, in one line."""
    tally = progress.tally
    reasons = "".join(f" {reason}×{count}" for reason, count in tally.rejected_by_reason.items())
    reward = f"  reward {progress.figures[-1]['mean_task_reward']:.2f}" if progress.figures else ""
    version = "–" if tally.policy_version is None else str(tally.policy_version)
    return (
        f"step {tally.step}/{progress.num_steps}  weights v{version}{reward}  accepted {tally.accepted}"
        f"  rejected {tally.rejected}{reasons}  slashed {len(tally.slashed)}  epoch {tally.epochs}"
    )


def _waiting_line(progress: Progress) -> str:
    return f"waiting for {progress.waiting} since {progress.waiting_seconds:.0f} s"


def _versions(progress: Progress) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("weights", "workers", "by patches", "first (s)", "last (s)", "fetched (KB)", "saved"):
        table.add_column(column, justify="right")
    for version in progress.versions[-VERSIONS_SHOWN:]:
        table.add_row(
            f"v{version.policy_version}",
            str(version.num_workers),
            str(version.num_workers - version.num_by_way.get("whole", 0)),
            *(
                "–" if seconds is None else f"{seconds:.1f}"
                for seconds in (version.first_seconds, version.last_seconds)
            ),
            f"{version.fetched_bytes / 1000:.0f}",
            f"{saved_share(version):.0%}",
        )
    return table


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.1f}"


def _steps(progress: Progress) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("step", "reward", "objective", "entropy", "clipped", "lag", "tokens", "waited (s)"):
        table.add_column(column, justify="right")
    for line in progress.figures[-STEPS_SHOWN:]:
        table.add_row(
            str(line["step"]),
            f"{line['mean_task_reward']:.3f}",
            f"{line['objective']:+.4f}",
            f"{line['entropy']:.3f}",
            f"{line['ratio_clipped_share']:.1%}",
            f"{line['mean_policy_lag']:.1f}",
            str(line["num_tokens"]),
            f"{line['waited_seconds']:.1f}",
        )
    return table
