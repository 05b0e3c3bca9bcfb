"""What a run says about a program: passed or failed, and whether every honest machine would say so.

In: a `Run`, its limits, whether what came out is right. Out: `Verdict`. A worker and a verifier may differ in speed by
`margin` and still never contradict each other with certainty:

    CPU time    0 ──── limit/margin ──── limit ──── limit × margin
    right       passed, certain │ passed, uncertain │ failed, uncertain │ ended: failed, certain
    wrong       failed, certain, however long it took: on no machine is it right and in time

Time is CPU time, so that a busy machine is as quick as an idle one; what waits without computing (a lock that nobody
frees) is measured in the same way against `idle_seconds`. Memory is the address space, which is the same everywhere,
but for the libraries' share: a run near the limit is uncertain, until it has failed with twice as much too.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.sandbox.limits import Limits
from protocol.sandbox.process import Run

NEAR_MEMORY_LIMIT = 0.8
KILLED = 128 + 9
"""Within a sandbox nothing can kill the program: the machine did, when it was short of memory."""


@dataclass(frozen=True)
class Verdict:
    """`certain`: no honest machine finds the opposite."""

    passed: bool
    certain: bool
    why: str = ""


def judge(run: Run, limits: Limits, is_right: bool) -> Verdict:
    """`is_right`: whether what the run gave out is what was expected. The limits are those that it ran under."""
    if run.ending == "last_resort":
        return Verdict(False, False, f"still busy after {run.wall_seconds:.0f} s on a machine that is too")
    if run.ending == "exited" and run.exit_code == KILLED:
        return Verdict(False, False, "it was killed from outside, or says so")
    if run.ending != "exited":
        return Verdict(False, True, _ENDINGS[run.ending])
    if run.exit_code != 0 or not is_right:
        return _failed(run, limits)
    used = max(run.cpu_seconds / limits.cpu_seconds, run.idle_seconds / limits.idle_seconds)
    near = used >= 1 / limits.margin or run.peak_bytes > NEAR_MEMORY_LIMIT * limits.memory_bytes
    why = f"{run.cpu_seconds:.2f} s of CPU time, {run.idle_seconds:.2f} s idle" if near else ""
    return Verdict(used < 1, not near, why)


_ENDINGS = {"cpu": "it takes too long", "idle": "it waits for nothing", "output": "it puts out too much"}


def _failed(run: Run, limits: Limits) -> Verdict:
    error = run.stderr.decode(errors="replace").rstrip().rpartition("\n")[2]
    short_of_memory = run.exit_code != 0 and (
        error.startswith("MemoryError") or run.peak_bytes > NEAR_MEMORY_LIMIT * limits.memory_bytes
    )
    why = error or f"exit code {run.exit_code}" if run.exit_code else "it gives out something else"
    return Verdict(False, not short_of_memory, why[:200])
