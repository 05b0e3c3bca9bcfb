"""Sandboxed tests by the thousand: how many a second, what each costs, what is left; answers judged again and again.

Out: on stdout, runs a second, CPU milliseconds and wall milliseconds a run, memory, processes, mounts, descriptors and
files before and after; answers judged otherwise than they should be, over 20 repetitions under load; and whether 1,000
completions score the same in other processes and surroundings. Half an hour on two processors.

python -m pytest -m bench -s tests/bench/test_bench_sandbox.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocol.sandbox.interpreter import ROOM
from protocol.sandbox.limits import Limits
from protocol.sandbox.pool import Pool
from protocol.sandbox.process import Job
from tests.sandboxes import descendants, require_sandbox
from tests.worlds.code import World, answers

NUM_RUNS, NUM_QUICK = 5000, 300
PARTS = 10
MIN_RUNS_A_SECOND = 25
NUM_CORES = 2
MAX_GROWTH_BYTES = 8 << 20
LEFT = Path("/tmp/left-by-a-sandbox")
PROGRAM = f"open('{LEFT}', 'w')\na, b = map(int, input().split())\nprint(sum(x * x for x in range(a)) + b)"


@dataclass(frozen=True)
class Traces:
    """What runs could leave on a machine."""

    resident_bytes: int
    num_descriptors: int
    num_mounts: int
    num_files: int
    num_sandboxes: int


def traces() -> Traces:
    statm = Path("/proc/self/statm").read_text().split()
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return Traces(
        resident_bytes=int(statm[1]) * os.sysconf("SC_PAGE_SIZE"),
        num_descriptors=len(list(Path("/proc/self/fd").iterdir())),
        num_mounts=sum(f" {ROOM}" in line or "newroot" in line for line in mounts),
        num_files=LEFT.exists(),
        num_sandboxes=len(descendants()),
    )


def cpu_seconds() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def measure(num_runs: int) -> None:
    """Raises AssertionError where anything is wrong, too slow, or left."""
    without = traces()
    pool = Pool(Limits(), num_at_once=NUM_CORES)
    pool.run_all([Job(PROGRAM, b"3 4\n")] * 20)
    before, resident = traces(), list[int]()
    start, cpu, walls = time.monotonic(), cpu_seconds(), list[float]()
    for part in range(PARTS):
        numbers = range(part * num_runs // PARTS, (part + 1) * num_runs // PARTS)
        runs = pool.run_all(Job(PROGRAM, f"{n % 50} {n}\n".encode()) for n in numbers)
        assert [int(run.stdout) for run in runs] == [sum(x * x for x in range(n % 50)) + n for n in numbers]
        walls += [run.wall_seconds for run in runs]
        resident.append(traces().resident_bytes)
    seconds, cpu_each = time.monotonic() - start, (cpu_seconds() - cpu) / num_runs
    after = traces()
    pool.close()
    last = traces()
    walls.sort()
    print(
        f"{num_runs} runs: {num_runs / seconds:.1f} a second, {1000 * cpu_each:.1f} ms of CPU each, so"
        f" {NUM_CORES / cpu_each:.0f} a second on {NUM_CORES} free cores; from warm to answered"
        f" {1000 * walls[num_runs // 2]:.1f} ms (median), {1000 * walls[num_runs * 9 // 10]:.1f} ms (90 %)"
    )
    print(f"resident MiB by tenths: {', '.join(f'{size / 2**20:.1f}' for size in resident)}\n{before}\n{after}\n{last}")
    assert NUM_CORES / cpu_each >= MIN_RUNS_A_SECOND
    assert resident[-1] - resident[0] <= MAX_GROWTH_BYTES
    assert (after.num_descriptors, after.num_mounts, after.num_files) == (before.num_descriptors, 0, 0)
    assert after.num_sandboxes <= before.num_sandboxes and last.num_sandboxes <= without.num_sandboxes


@pytest.mark.slow
def test_hundreds_of_runs_leave_nothing() -> None:
    require_sandbox()
    measure(NUM_QUICK)


@pytest.mark.bench
@pytest.mark.timeout(3600)
def test_thousands_of_runs() -> None:
    require_sandbox()
    measure(NUM_RUNS)


@pytest.mark.bench
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("kind", ["right", "wrong", "crash", "cheat", "slow"])
def test_answers_are_judged_the_same_twenty_times_under_load(kind: str) -> None:
    require_sandbox()
    # What never ends takes its second of CPU time each: a part of it must do.
    world, some = World(num_tests=2), answers([kind])[:: 12 if kind == "slow" else 1]
    load = os.getloadavg()[0]
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(int(2 * NUM_CORES - load))]
    try:
        found = [problem for _ in range(20) for problem in world.misjudged(some)]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(f"{kind}: {len(some)} answers judged 20 times at a load of {load:.0f}, {len(found)} wrongly: {found[:5]}")
    assert not found


@pytest.mark.bench
@pytest.mark.timeout(3600)
def test_a_thousand_completions_score_the_same_everywhere() -> None:
    require_sandbox()
    common = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    surroundings = [
        (Path.cwd(), {**common, "PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C"}),
        (Path("/"), {**common, "PYTHONHASHSEED": "7", "TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8"}),
    ]
    command = [sys.executable, "-m", "tests.worlds.code", "1000"]
    found = [
        json.loads(subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True).stdout)
        for folder, environment in surroundings
    ]
    quick = [answer.score for answer in answers() if answer.kind != "slow"]
    should = [quick[place % len(quick)] for place in range(1000)]
    different = sum(a != b for a, b in zip(*found, strict=True))
    print(f"1,000 completions: {sum(found[0]):.0f} pass, {different} score otherwise in another process")
    assert found[0] == found[1] == should
