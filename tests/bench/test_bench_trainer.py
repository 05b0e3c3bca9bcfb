"""One optimizer step against TRL's GRPOTrainer: tokens a second, peak memory, and that both do the same.

In: the testnet's model and SmolLM2 (fetched once), float32, one and two threads; TRL in an environment of its own, made
when first needed. `tests/bench/trl/step.py` says what is compared. Out, on stdout and checked: ratios of medians over
steps by turns in one process, the first of each side left out; and how far resident memory rises in a process of each
side. Seconds are the process's CPU time with one thread, so that a busy machine slows both alike, and the clock's with
two. TRL is as quick as it gets: no gradient checkpointing, and the head that it keeps for GPUs. Ten minutes if idle:

    python -m pytest -m bench -s tests/bench/test_bench_trainer.py
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.bench.timing import ratio_of_medians
from tests.bench.trl.environment import ask, trl_python
from tests.bench.trl.work import Shape
from tests.unit.verifier.verifier_world import BASE_MODEL

__all__ = ["trl_python"]

LEAST_RATIO: dict[Shape, float] = {"mixed": 1.5, "equal": 1.0}
CLOCKS = {1: "cpu", 2: "wall"}
MIB = 1 << 20


@dataclass(frozen=True)
class Load:
    """What is trained on: groups, prompt's and longest completion's tokens; rows of a pass of TRL's; steps by turns."""

    name: str
    work: tuple[int, int, int]
    micro_batch: int
    runs: int


LOADS = [Load("tiny", (4, 16, 240), 16, 9), Load("SmolLM2", (1, 16, 112), 4, 4)]


@pytest.fixture(params=LOADS, ids=lambda load: load.name)
def loaded(request: pytest.FixtureRequest) -> tuple[Load, Path]:
    load: Load = request.param
    return load, BASE_MODEL if load.name == "tiny" else request.getfixturevalue("smollm2_folder")


@pytest.mark.bench
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", ["mixed", "equal"])
def test_a_step_against_trl(trl_python: Path, loaded: tuple[Load, Path], shape: Shape, threads: int) -> None:
    load, folder = loaded

    def measure(sides: list[str], runs: int) -> Any:
        question = {"work": load.work, "micro_batch": load.micro_batch, "threads": threads, "runs": runs}
        return ask(trl_python, "step", model=str(folder), shape=shape, sides=sides, **question)

    turns = measure(["trl-compact", "ours"], load.runs)
    ours, theirs = turns["steps"]["ours"], turns["steps"]["trl"]
    ratio = ratio_of_medians(*(side[CLOCKS[threads]][1:] for side in (theirs, ours)))
    rises = {side: measure([side], 2)["rise"] / MIB for side in ("ours", "trl-compact")}
    rates = [turns["tokens"] / statistics.median(side["wall"][1:]) for side in (ours, theirs)]
    print(f"\n{load.name}, {shape} ({turns['fullness']:.2f}), {threads} threads: {ratio:.2f} times as fast as TRL")
    print(f"  tokens/s by the clock {rates[0]:.0f} against {rates[1]:.0f}")
    print(f"  memory rises by {rises['ours']:.0f} MiB against {rises['trl-compact']:.0f}")
    print(f"  losses {ours['losses']} against {theirs['losses']}", flush=True)
    assert ours["losses"] == pytest.approx(theirs["losses"], abs=1e-5)
    assert ours["norms"] == pytest.approx(theirs["norms"], rel=1e-4)
    assert max(map(abs, ours["losses"])) > 1e-3, "losses of 0 would agree whatever was computed"
    assert shape == "equal" or turns["fullness"] <= 0.5
    assert ratio >= LEAST_RATIO[shape]
    assert rises["ours"] < rises["trl-compact"]
