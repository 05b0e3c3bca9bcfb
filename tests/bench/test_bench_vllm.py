"""vLLM as the generator, under the committed limits: honest work refused, and what proofs cost (docs/benchmarks.md).

Rollouts come from the vLLM engine; transformers' forward and our packed pass judge them, whole submissions of 64 and
each rollout alone. Needs the environment that `make vllm` makes. SmolLM2 in float32 takes half an hour of two cores:

    .venv-vllm/bin/python -m pytest -m bench -s tests/bench/test_bench_vllm.py -k float32
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch

from protocol.checks.case import Case
from protocol.engines.base import Engine, Request, generate
from protocol.engines.torch import TorchEngine
from protocol.engines.vllm.engine import VllmEngine
from protocol.engines.vllm.options import VllmOptions
from protocol.forward import CausalLM
from protocol.prover import in_task_order, proofs_of
from protocol.rules import Rules, Thresholds
from testnet.task import MAX_NEW_TOKENS
from tests.attacks.pools import limits, tiny
from tests.unit.verifier.verifier_world import World
from tests.vllm.work import task_requests, task_rollouts
from tests.worlds.honest import SUBMISSION, Tally
from tests.worlds.smollm2 import make_smollm2_world
from verifier.calibration.observe import Model, judged
from verifier.calibration.reference import ReferenceModel
from verifier.calibration.setups import Dtype, Judge

pytestmark = [
    pytest.mark.bench,
    pytest.mark.timeout(4 * 3600),
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM isn't installed: make vllm"),
]

FIRST_COUNTER = 1000
"""Tasks that no calibration and no test has seen."""
LENGTHS = (64, 96, 128)
COST_LENGTH, COST_BATCH, RUNS = 64, 32, 5


@dataclass(frozen=True)
class Watch:
    """What each judge says of all tasks."""

    tallies: dict[str, Tally]
    limits: Thresholds

    def judge(self, world: World, case: Case, judges: dict[str, tuple[Model, Judge]]) -> None:
        for name, (model, judge) in judges.items():
            self.tallies[name].add(("vllm", name), case, judged(case, model, judge), self.limits)

    def show(self) -> None:
        for tally in self.tallies.values():
            tally.show()

    def require_none_refused(self, num_rollouts: int) -> None:
        for tally in self.tallies.values():
            assert tally.num_rollouts >= num_rollouts
            assert not tally.submissions_refused
            assert not tally.rollouts_refused


def judges_of(world: World, dtype: Dtype) -> dict[str, tuple[Model, Judge]]:
    """The library's forward, and ours as verifiers run it."""
    return {
        f"transformers {dtype}": (ReferenceModel(world.folder, dtype), Judge("transformers", dtype, slice_tokens=2048)),
        f"torch {dtype}": (CausalLM.load(world.folder, _torch(dtype)).eval(), Judge("torch", dtype)),
    }


def _torch(dtype: Dtype) -> torch.dtype:
    return torch.float32 if dtype == "float32" else torch.bfloat16


def honest(
    engine: Engine, world: World, dtype: Dtype, thresholds: Thresholds, num_tasks: int, lengths: tuple[int, ...]
) -> Watch:
    """Tasks of one submission each; their rollouts are as long as `lengths` say, by turns."""
    judges = judges_of(world, dtype)
    watch = Watch({name: Tally() for name in judges}, thresholds)
    num_tokens, seconds = 0, 0.0
    for number in range(num_tasks):
        sized = with_length(world, lengths[number % len(lengths)])
        started = time.perf_counter()
        rollouts = task_rollouts(engine, sized, FIRST_COUNTER + number)
        seconds += time.perf_counter() - started
        num_tokens += sum(rollout.num_units for rollout in rollouts)
        counter = FIRST_COUNTER + number
        case = sized.case(rollouts, counter)
        watch.judge(sized, case, judges)
        if number % 20 == 0 or num_tasks < 20:
            print(f"{number + 1} of {num_tasks} tasks, {num_tokens / seconds:.0f} tokens/s", flush=True)
    return watch


def with_length(world: World, length: int) -> World:
    sampling = world.rules.sampling.model_copy(update={"max_new_tokens": length})
    document = world.rules.model_dump(mode="json") | {"sampling": sampling.model_dump(mode="json")}
    return replace(world, rules=Rules.model_validate(document))


@pytest.fixture
def engine_of() -> Iterator[Any]:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    started: list[VllmEngine] = []

    def start(world: World, dtype: Dtype, max_batch: int = 64) -> VllmEngine:
        started.append(VllmEngine(max_batch, dtype, VllmOptions(max_length=min(256, _most(world)))))
        started[-1].load(world.folder)
        return started[-1]

    yield start
    for engine in started:
        engine.close()


def _most(world: World) -> int:
    return world.model.config.max_position_embeddings


@pytest.mark.parametrize(("dtype", "num_rollouts"), [("float32", 512), ("bfloat16", 32)])
def test_smollm2_by_vllm_is_not_refused(smollm2_folder: Path, engine_of: Any, dtype: Dtype, num_rollouts: int) -> None:
    groups = min(num_rollouts, SUBMISSION) // 8
    world = make_smollm2_world(smollm2_folder, groups_per_task=groups, thresholds=limits("smollm2", dtype))
    engine = engine_of(world, dtype)
    lengths = LENGTHS if dtype == "float32" else (64,)
    watch = honest(engine, world, dtype, world.rules.thresholds, -(-num_rollouts // (8 * groups)), lengths)
    watch.show()
    watch.require_none_refused(num_rollouts)


@pytest.mark.parametrize(("dtype", "num_rollouts"), [("float32", 20_032), ("bfloat16", 2_048)])
def test_the_tiny_model_by_vllm_is_not_refused(engine_of: Any, dtype: Dtype, num_rollouts: int) -> None:
    world = tiny(dtype).world
    engine = engine_of(world, dtype)
    watch = honest(engine, world, dtype, world.rules.thresholds, num_rollouts // SUBMISSION, (MAX_NEW_TOKENS,))
    watch.show()
    watch.require_none_refused(num_rollouts)


def mixed_requests(world: World, num_requests: int, lengths: Sequence[int]) -> list[Request]:
    """Requests that end at their lengths only."""
    asked = [replace(request, eos_ids=frozenset()) for request in task_requests(world, FIRST_COUNTER)]
    return [
        replace(request, sampling=world.rules.sampling.model_copy(update={"max_new_tokens": length}))
        for request, length in zip(asked[:num_requests], cycle(lengths), strict=False)
    ]


def cpu_seconds(call: Callable[[], object]) -> float:
    """Of this process, all its threads: what else the machine does counts little."""
    started = time.process_time()
    call()
    return time.process_time() - started


def plainly(engine: VllmEngine, requests: Sequence[Request], temperature: float) -> None:
    """The same engine's own sampling: no seeds of ours, no log-probs, no states kept, no proofs."""
    params = engine._vllm.SamplingParams
    for number, request in enumerate(requests):
        asked = params(
            temperature=temperature, max_tokens=request.sampling.max_new_tokens, ignore_eos=True, detokenize=False
        )
        engine._llm.add_request(f"plain {number}", {"prompt_token_ids": request.input_tokens.tolist()}, asked)
    while engine._llm.has_unfinished_requests():
        engine._llm.step()


def with_everything(engine: Engine, world: World, requests: Sequence[Request]) -> None:
    proofs_of(in_task_order(list(generate(engine, requests)), len(requests)), world.rules.toploc)


def alternate(ways: dict[str, Callable[[], object]], runs: int = RUNS) -> dict[str, float]:
    """Median CPU seconds of each way, taken by turns, the first turn left out."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(runs + 1):
        for name, way in ways.items():
            spent = cpu_seconds(way)
            if turn:
                taken[name].append(spent)
    print({name: [round(one, 2) for one in each] for name, each in taken.items()})
    return {name: statistics.median(each) for name, each in taken.items()}


@pytest.mark.parametrize("model", ["smollm2", "tiny"])
def test_the_cost_of_proofs_seeds_and_logprobs(request: pytest.FixtureRequest, engine_of: Any, model: str) -> None:
    world = tiny().world if model == "tiny" else make_smollm2_world(request.getfixturevalue("smollm2_folder"))
    world = replace(world, rules=world.rules.model_copy(update={"groups_per_task": COST_BATCH // 8}))
    engine, requests = engine_of(world, "float32", COST_BATCH), mixed_requests(world, COST_BATCH, [COST_LENGTH])
    ways = {
        "plain": partial(plainly, engine, requests, temperature=1.0),
        "greedy": partial(plainly, engine, requests, temperature=0.0),
        "all": partial(with_everything, engine, world, requests),
    }
    found = alternate(ways)
    cost = found["all"] / found["plain"] - 1
    print(f"{model}: against greedy decoding {100 * (found['all'] / found['greedy'] - 1):.1f} %")
    print(f"{model}: plain {found['plain']:.2f} CPU-s, with everything {found['all']:.2f}, cost {100 * cost:.1f} %")
    assert cost <= 0.05 or model == "tiny"


@pytest.mark.parametrize("model", ["smollm2", "tiny"])
def test_the_torch_engine_against_vllm(request: pytest.FixtureRequest, engine_of: Any, model: str) -> None:
    """32 at a time, of mixed lengths, with twice as many waiting at the start."""
    world = tiny().world if model == "tiny" else make_smollm2_world(request.getfixturevalue("smollm2_folder"))
    world = replace(world, rules=world.rules.model_copy(update={"groups_per_task": 8}))
    requests = mixed_requests(world, 64, (16, 64, 32, 128))
    num_tokens = sum(one.sampling.max_new_tokens for one in requests)
    ours = TorchEngine(COST_BATCH)
    ours.load(world.folder)
    theirs = engine_of(world, "float32", COST_BATCH)
    found = alternate(
        {
            name: partial(with_everything, engine, world, requests)
            for name, engine in (("torch", ours), ("vllm", theirs))
        },
        runs=3 if model == "smollm2" else RUNS,
    )
    print(
        f"{model}: "
        + ", ".join(f"{name} {num_tokens / taken:.0f} tokens a CPU-second" for name, taken in found.items())
    )
    print(f"{model}: torch / vllm {found['vllm'] / found['torch']:.2f}")
