"""A later version in a running engine: patches in place against a load.

In: the tiny base model and SmolLM2 (fetched once) as published, bf16; a patch of one value in a hundred, and chains of
them; files in memory (/dev/shm) where there is such a place. Out: on stdout, for each engine, its precision and a chain
of 1 or 4 patches, medians of rounds in which the ways take turns, on one thread: CPU seconds of `load` and of `apply`
to the same version, seconds on the clock, and by how many MB the process's memory grows on the way at most. Engines of
vLLM are measured where vLLM is. Two minutes on two cores that nobody else uses.

python -m pytest -m bench -s tests/bench/test_bench_apply.py
.venv-vllm/bin/python -m pytest -m bench -s tests/bench/test_bench_apply.py
"""

from __future__ import annotations

import gc
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from protocol.engines.base import LiveEngine
from protocol.engines.names import Dtype, EngineName
from protocol.engines.registry import make_engine
from protocol.engines.vllm.options import VllmOptions
from protocol.heap import return_holes
from protocol.weights import ModelConfig, load_weights
from tests.unit.verifier.verifier_world import BASE_MODEL
from tests.worlds.versions import Versions

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

ENGINES: tuple[EngineName, ...] = ("torch", "vllm") if find_spec("vllm") else ("torch",)
DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")
SHARE, CHAINS, ROUNDS = 0.01, (1, 4), 7
LEAST_GAIN = 1.5
"""Of the torch engine in float32 on SmolLM2, with one patch."""


@dataclass(frozen=True)
class Cost:
    """CPU seconds, seconds, and MB that memory grew by at most."""

    cpu: float
    seconds: float
    growth: float

    @classmethod
    def of(cls, call: Callable[[], object]) -> Cost:
        gc.collect()
        return_holes()
        before = _memory("VmRSS", resets=True)
        cpu, clock = time.process_time(), time.perf_counter()
        call()
        cpu, clock = time.process_time() - cpu, time.perf_counter() - clock
        return cls(cpu, clock, _memory("VmHWM") - before)

    @classmethod
    def median(cls, costs: list[Cost]) -> Cost:
        return cls(*(statistics.median(getattr(cost, name) for cost in costs) for name in ("cpu", "seconds", "growth")))


def _memory(field: str, *, resets: bool = False) -> float:
    """MB of this process, as Linux counts them; the peak starts anew where `resets`."""
    if resets:
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


@pytest.fixture
def home() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_tiny_model(home: Path) -> None:
    measured(home, BASE_MODEL)


def test_smollm2(home: Path, smollm2_folder: Path) -> None:
    found = measured(home, smollm2_folder)
    assert found["torch", "float32", 1] >= LEAST_GAIN


def measured(home: Path, model: Path) -> dict[tuple[EngineName, Dtype, int], float]:
    """By how many times fewer CPU seconds each `apply` takes than its `load`."""
    config, weights = ModelConfig.load(model), load_weights(model)
    stored = {name: weights[name].bfloat16() for name in config.weight_shapes()}
    versions = Versions(home, config, stored, num_versions=1 + max(CHAINS), share=SHARE)
    del weights, stored
    found = {}
    print(f"\n{'engine':<18}{'patches':>8}{'load':>16}{'apply':>16}{'ratio':>8}{'load MB':>10}{'apply MB':>10}")
    for name in ENGINES:
        for dtype in DTYPES:
            options = VllmOptions(max_length=256, cache_gib=0.2)
            engine = make_engine(name, max_batch=32, dtype=dtype, vllm=options)
            for length in CHAINS:
                load, apply = costs(engine, versions, length)
                found[name, dtype, length] = ratio = load.cpu / apply.cpu
                told = [f"{one.cpu:7.3f} ({one.seconds:.3f})" for one in (load, apply)]
                print(f"{name + ' ' + dtype:<18}{length:>8}{told[0]:>16}{told[1]:>16}{ratio:>8.1f}", end="")
                print(f"{load.growth:>10.0f}{apply.growth:>10.0f}", flush=True)
            engine.close()
    return found


def costs(engine: LiveEngine, versions: Versions, length: int) -> tuple[Cost, Cost]:
    """Of a load and of a chain of patches, to the same version from the same one, in turns."""
    engine.load(versions.folder(0))
    engine.apply(versions.chain(0, length), versions.folder(length))  # what is found out once is found out here
    loads, applied = [], []
    for _ in range(ROUNDS):
        engine.load(versions.folder(0))
        applied.append(Cost.of(lambda: engine.apply(versions.chain(0, length), versions.folder(length))))
        engine.load(versions.folder(0))
        loads.append(Cost.of(lambda: engine.load(versions.folder(length))))
    return Cost.median(loads), Cost.median(applied)
