"""What verifying costs on SmolLM2: against one plain forward of transformers, and against generating.

In: SmolLM2 (fetched once). Out: on stdout, medians of alternating runs in this process, float32, two threads.
`full` is everything that a verifier does with a file: parse, cheap checks, rewards, packed pass, statistics of every
row, TOPLOC. The anchor: hidden states of the same whole sequences by transformers and logits at the sampled positions
(`anchor.py`), the quicker of two ways. A prompt goes through the verifier's pass once for its group of 8. About 7
minutes on two idle cores.

OMP_NUM_THREADS=2 python -m pytest -m bench -s tests/bench/test_bench_cost.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from protocol.checks.case import Case, open_case
from protocol.checks.prefill import measure
from protocol.checks.stages import CHEAP, COSTLY
from protocol.checks.stopwatch import Stopwatch
from protocol.engines.base import Completion, requests_of
from protocol.engines.torch import TorchEngine
from protocol.prompts import task_prompts
from protocol.prover import in_task_order
from protocol.rollouts import write_rollouts
from protocol.rules import SamplingRules
from tests.bench.anchor import Anchor
from tests.unit.verifier.verifier_world import World
from tests.worlds.smollm2 import make_smollm2_world

THREADS = 2
RUNS = 5
NUM_GROUPS = 4
LENGTHS = (16, 64, 128, 256)
BATCHES = (1, 8, 32)
NUM_ROLLOUTS = 8 * NUM_GROUPS
TASK_ROLLOUTS, AUDITED = 64, 3
"""Of a submission's 64 rollouts 3 are audited: with one cheated in ten, 20 submissions escape with 0.3 %."""


@pytest.fixture
def world(smollm2_folder: Path) -> Iterator[World]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield make_smollm2_world(smollm2_folder, groups_per_task=NUM_GROUPS)
    torch.set_num_threads(before)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def verify(world: World, file: bytes, watch: Stopwatch | None = None, audited: Sequence[int] | None = None) -> Case:
    """Every check of a file, whatever the cheap ones find."""
    watch = watch or Stopwatch()
    case = open_case(file, world.terms())
    for check in CHEAP:
        check(case)
    watch.lap("file and cheap checks")
    case = replace(case, measurements=measure(case, world.model, audited, watch=watch))
    for check in COSTLY:
        check(case)
    watch.lap("reduction")
    return case


def generated(world: World, batch: int, length: int) -> tuple[list[Completion], dict[int, float]]:
    """`batch` rollouts of `length` tokens, EOS or not, that decode together; seconds until each of LENGTHS."""
    engine, taken, finished = TorchEngine(batch), {}, []
    engine.use(world.model)
    prompts = task_prompts(world.rules, world.environment, world.seed())
    asked = [prompts[i // world.rules.group_size].tokens for i in range(batch)]
    engine.add(requests_of(world.seed(), asked, SamplingRules(max_new_tokens=length), eos_ids=()))
    start = time.perf_counter()
    for step in range(1, length + 1):
        finished += engine.step()
        if step in LENGTHS:
            taken[step] = time.perf_counter() - start
    return in_task_order(finished, batch), taken


def cut(completion: Completion, length: int) -> Completion:
    return replace(
        completion,
        output_tokens=completion.output_tokens[:length],
        output_logprobs=completion.output_logprobs[:length],
        hidden_rows=completion.hidden_rows[:length],
        finish_reason="length",
    )


def file_of(world: World, completions: Sequence[Completion], length: int) -> bytes:
    return write_rollouts(world.header(), world.rollouts([cut(completion, length) for completion in completions]))


@pytest.mark.bench
@pytest.mark.timeout(1800)
def test_verifying_against_a_plain_forward_and_against_generating(world: World) -> None:
    completions, together = generated(world, NUM_ROLLOUTS, max(LENGTHS))
    against_anchor(world, file_of(world, completions, LENGTHS[1]))
    generation = {NUM_ROLLOUTS: together} | {batch: generated(world, batch, max(LENGTHS))[1] for batch in BATCHES[:-1]}
    against_generating(world, completions, generation)


def against_anchor(world: World, file: bytes) -> None:
    """Verification and anchor by turns; states must agree, so that both did the work."""
    case = verify(world, file)
    anchor = Anchor.of(world.folder, case.rollouts)
    first = {name: seconds(way) for name, way in anchor.ways.items()}
    name = min(first, key=lambda way: first[way])
    runs: list[tuple[float, float]] = []
    stages: dict[str, list[float]] = {}
    for _ in range(RUNS):
        watch = Stopwatch()
        runs.append((seconds(lambda: verify(world, file, watch)), seconds(anchor.ways[name])))  # noqa: B023
        for stage, taken in watch.seconds.items():
            stages.setdefault(stage, []).append(taken)
    full, plain = (statistics.median(column) for column in zip(*runs, strict=True))
    print(f"\n{NUM_ROLLOUTS} rollouts of {LENGTHS[1]} tokens, {THREADS} threads")
    print(f"full {full:.2f} s, anchor ({name}) {plain:.2f} s, ratio {full / plain:.2f}")
    print(f"runs {[(round(a, 2), round(b, 2)) for a, b in runs]}; anchors at first {first}")
    print({stage: round(statistics.median(values), 3) for stage, values in stages.items()})
    assert full <= 1.25 * plain


def against_generating(
    world: World, completions: Sequence[Completion], generation: dict[int, dict[int, float]]
) -> None:
    """Seconds a rollout by output length; `sampled`: 3 of 64 rollouts audited, from different groups."""
    print(f"{'tokens':>7}{'full':>9}" + "".join(f"{f'batch {b}':>10}{'ratio':>7}{'sampled':>9}" for b in BATCHES))
    for length in LENGTHS:
        sized = replace(world, rules=world.rules.model_copy(update={"sampling": SamplingRules(max_new_tokens=length)}))
        file = file_of(sized, completions, length)
        full = statistics.median(seconds(lambda: verify(sized, file)) for _ in range(3)) / NUM_ROLLOUTS  # noqa: B023
        drawn = [index * NUM_ROLLOUTS // AUDITED for index in range(AUDITED)]
        sampled = statistics.median(seconds(lambda: verify(sized, file, audited=drawn)) for _ in range(3))  # noqa: B023
        line = f"{length:>7}{full:>9.3f}"
        for batch in BATCHES:
            each = generation[batch][length] / batch
            line += f"{each:>10.2f}{each / full:>7.1f}{TASK_ROLLOUTS * each / sampled:>9.0f}"
        print(line)
