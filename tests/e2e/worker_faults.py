"""A testnet whose workers and coordinator are troubled by a seeded list of faults, one after the other.

    kill         SIGKILL to a worker                          it is started again at once
    stop         SIGTERM to a worker                          it is started again when it has ended
    coordinator  SIGKILL to the coordinator                   it is started again at once
    full         a worker's disk has no byte left             for a few faults
    slow, cut    a worker's line to its coordinator           for a few faults

Half of the faults of a worker wait until it has a task at hand, half until it has handed something in since its last.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from protocol.errors import CoordinatorUnreachable, ProofpoolError
from protocol.lock import FolderLock
from testnet.process import Process
from testnet.run import LOOK_SECONDS, Run
from tests.slow_line import SlowLine

WEIGHTS = {"kill": 16, "stop": 8, "coordinator": 8, "full": 8, "slow": 6, "cut": 4}
DISK_BYTES = 96 << 20
FILLER = "filler"
MOST_WAIT_SECONDS = 120.0
"""For the moment that a fault is meant for; then it comes all the same."""


@dataclass(frozen=True)
class Fault:
    """It hits the first of `workers` whose moment (`when`) has come; `lasts` counts faults until it is mended."""

    kind: str
    workers: tuple[str, ...]
    when: str
    lasts: int


def faults(seed: int, number: int, workers: list[str], *, can_fill: bool) -> list[Fault]:
    """The same list for the same seed."""
    source = random.Random(seed)
    kinds = {kind: weight for kind, weight in WEIGHTS.items() if can_fill or kind != "full"}
    return [
        Fault(
            kind,
            tuple(source.sample(workers, len(workers))),
            source.choice(("at hand", "handed in")),
            source.randint(1, 3),
        )
        for kind in source.choices(list(kinds), list(kinds.values()), k=number)
    ]


@dataclass(frozen=True)
class Lasting:
    """A fault that is there until so many faults are done."""

    kind: str
    victim: str
    until: int


class TroubledRun(Run):
    """A run whose workers reach the coordinator over lines, and have small disks where that can be had."""

    lines: dict[str, SlowLine]
    disks: dict[str, Path]

    def _prepared_roles(self) -> dict[str, Process]:
        prepared = super()._prepared_roles()
        self.lines, self.disks = {}, {}
        names = [provider.name for provider in self.accounts.providers]
        for name in names:
            self.lines[name] = self._ends.enter_context(SlowLine(self.site.coordinator_port))
            self._mount(name)
            prepared[name].niceness = 0
            self._rewrite(name, {self.site.coordinator_url: self._line_url(name)}, "min_free_disk_bytes = 0\n")
        hosts = ", ".join(f'"127.0.0.1:{self.lines[name].port}"' for name in names)
        self._rewrite("coordinator", {}, f"public_hosts = [{hosts}]\n")
        return prepared

    def _line_url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.lines[name].port}"

    def _rewrite(self, name: str, changes: dict[str, str], added: str) -> None:
        file = self.run_dir / "config" / f"{name}.toml"
        text = added + file.read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        file.write_text(text)

    def _mount(self, name: str) -> None:
        """A disk of its own, where this user may."""
        folder = self.run_dir / "data" / name
        folder.mkdir(parents=True)
        size = f"size={DISK_BYTES}"
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], capture_output=True, check=False
        )
        if mounted.returncode == 0:
            self.disks[name] = folder
            self._ends.callback(_unmount, folder)


@dataclass
class Trouble:
    """Does the faults to a run, in order. Example: `while trouble.goes_on(): run.turn(); trouble.turn()`."""

    run: TroubledRun
    left: list[Fault]
    done: list[Fault] = field(default_factory=list)
    lasting: list[Lasting] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    received: dict[str, int] = field(default_factory=dict)
    """What each worker had handed in at its last fault."""
    since: float = field(init=False)

    def __post_init__(self) -> None:
        self.since = self.run.clock.now()

    def goes_on(self) -> bool:
        return bool(self.left or self.lasting or self.stopped)

    def turn(self) -> None:
        """The next fault, if somebody's moment has come; what has lasted long enough is mended."""
        self._start_stopped()
        if self.left and (victim := self._victim(self.left[0])) is not None:
            fault = self.left.pop(0)
            self._do(fault, victim)
            self.done.append(fault)
            self.received[victim] = self.num_received(victim)
            self.since = self.run.clock.now()
        for one in list(self.lasting):
            if not self.left or len(self.done) >= one.until:
                self._mend(one)
                self.lasting.remove(one)

    def num_received(self, worker: str) -> int:
        node = next(each.node.address for each in self.run.accounts.providers if each.name == worker)
        return self.run.observer.tally.node(node).received

    def _victim(self, fault: Fault) -> str | None:
        """The first worker that is up and where the fault wants it; after a while the first that is up."""
        if not self._is_up("coordinator"):
            return None
        up = [name for name in fault.workers if name not in self.stopped and self._is_up(name)]
        ripe = [name for name in up if self._is_ripe(name, fault.when)]
        if not ripe and self.run.clock.now() - self.since > MOST_WAIT_SECONDS:
            ripe = up
        return ripe[0] if ripe else None

    def _is_ripe(self, worker: str, when: str) -> bool:
        if when == "at hand":
            return any((self.run.run_dir / "data" / worker / "leases").glob("0x*.json"))
        return self.num_received(worker) > self.received.get(worker, 0)

    def _do(self, fault: Fault, victim: str) -> None:
        if fault.kind in ("kill", "coordinator"):
            pid = self.run.processes[victim if fault.kind == "kill" else fault.kind].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            return
        if fault.kind == "stop":
            self.run.processes[victim].ask_to_stop()
            self.stopped.append(victim)
            return
        if fault.kind == "full":
            _fill(self.run.disks[victim] / FILLER)
        else:
            self.run.lines[victim].become("slow" if fault.kind == "slow" else "cut")
        self.lasting.append(Lasting(fault.kind, victim, len(self.done) + 1 + fault.lasts))

    def _mend(self, one: Lasting) -> None:
        if one.kind == "full":
            (self.run.disks[one.victim] / FILLER).unlink(missing_ok=True)
        else:
            self.run.lines[one.victim].become("fine")

    def _start_stopped(self) -> None:
        for name in list(self.stopped):
            process = self.run.processes[name]
            if not process.is_running():
                process.start()
                self.stopped.remove(name)

    def _is_up(self, name: str) -> bool:
        if not self.run.processes[name].is_running():
            return False
        if name != "coordinator":
            return True
        try:
            self.run.coordinator.pool()
        except CoordinatorUnreachable:
            return False
        return True


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "-l", folder], check=True)


def _fill(filler: Path) -> None:
    """Until the disk has no byte left."""
    with suppress(OSError), filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass


def run_through(run: TroubledRun, trouble: Trouble, until: float) -> None:
    """Once all work: the faults, one more submission of each, the end. Raises ProofpoolError when time is up."""
    names = list(run.lines)
    _turn_while(lambda: not all(map(trouble.num_received, names)), run, until, "the first submission of each worker")
    _turn_while(trouble.goes_on, run, until, "the faults", trouble.turn)
    wanted = {name: trouble.num_received(name) + 1 for name in names}
    _turn_while(
        lambda: any(trouble.num_received(name) < wanted[name] for name in names), run, until, "one more of each worker"
    )
    _turn_while(
        lambda: not all(FolderLock.is_held(run.run_dir / "data" / name) for name in names),
        run,
        until,
        "workers that have joined: one that is stopped before leaves its work to the next",
    )
    for name in names:
        run.processes[name].ask_to_stop()
    _turn_while(lambda: any(run.processes[name].is_running() for name in names), run, until, "the workers' end")
    run.turn()  # what they did last
    tally = run.observer.tally
    _turn_while(lambda: bool(tally.working or tally.unsettled), run, until, "all verdicts")


def _turn_while(
    condition: Callable[[], bool], run: TroubledRun, until: float, what: str, act: Callable[[], None] = lambda: None
) -> None:
    never = threading.Event()
    while condition():
        run.turn()
        act()
        if run.clock.now() > until:
            raise ProofpoolError(f"{what} didn't come in time", f"after {run.seconds:.0f} s", str(run.run_dir / "logs"))
        run.clock.wait(never, LOOK_SECONDS)
