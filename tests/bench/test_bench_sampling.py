"""Sampling: CPU time of the compiled scan, numpy and torch, one thread; and what binding to the seed finds.

OMP_NUM_THREADS=1 python -m pytest -m bench -s tests/bench/test_bench_sampling.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from protocol import sampling, sampling_torch
from protocol.kernels import VARIABLE
from protocol.rules import SamplingRules
from protocol.sampling_rows import draw_tokens, measure_rows
from tests.bench.sampling_power import (
    FLIPS_RATE,
    HONEST,
    MEAN_RATE,
    flips_power,
    judged_distances,
    mean_power,
    policies,
)

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

NUM_ROWS = 32
RULES = {
    "all tokens": SamplingRules(),
    "temperature 0.8": SamplingRules(temperature=0.8),
    "top_p 0.95": SamplingRules(top_p=0.95),
    "top_k 50": SamplingRules(top_k=50),
    "top_k 50, top_p 0.95": SamplingRules(top_k=50, top_p=0.95),
}
FIRST_CALL = """
import time
start = time.process_time()
import numpy as np
from protocol import sampling_torch
from protocol.rules import SamplingRules
from protocol.sampling_rows import draw_tokens
loaded = time.process_time()
draw_tokens(np.zeros((1, 9), np.float32), np.zeros(1, np.uint64), SamplingRules())
print(time.process_time() - loaded)
"""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def show(what: str, call: Callable[[], object], repeats: int = 15) -> None:
    """Median and least CPU time of several calls, after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(1000 * (time.process_time() - start))
    print(f"  {what:<44} median {statistics.median(times):9.2f} ms   least {min(times):9.2f} ms")


@pytest.mark.parametrize(("vocab_size", "spread"), [(49_152, 1.0), (49_152, 3.0), (151_936, 3.0)])
def test_rows(vocab_size: int, spread: float) -> None:
    """Normal logits: spread 1 is nearly flat (entropy 10.3 of 10.8 nats), 3 has an entropy of 6.4 nats."""
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(NUM_ROWS, vocab_size)) * spread).astype(np.float32)
    keys = sampling.noise_keys(bytes(32), range(NUM_ROWS), [0] * NUM_ROWS)
    claimed, tensor = rng.integers(0, vocab_size, NUM_ROWS), torch.from_numpy(logits)
    words = sampling_torch.as_tensor(keys)
    print(f"\n{NUM_ROWS} rows x {vocab_size:,} logits, spread {spread}")
    for name, rule in RULES.items():
        show(f"{name}: compiled, draw", lambda rule=rule: draw_tokens(logits, keys, rule))  # type: ignore[misc]
        show(
            f"{name}: compiled, measure",
            lambda rule=rule: measure_rows(logits, claimed, keys, rule, clip=10.0, eos_ids=(2,)),  # type: ignore[misc]
        )
        show(f"{name}: numpy, draw", lambda rule=rule: sampling.draw_tokens(logits, keys, rule), 3)  # type: ignore[misc]
        show(f"{name}: torch, draw", lambda rule=rule: sampling_torch.draw_tokens(tensor, words, rule), 3)  # type: ignore[misc]


def test_keys_and_first_call() -> None:
    print()
    show("10,000 noise keys", lambda: sampling.noise_keys(bytes(32), range(10_000), range(10_000)))
    for number in range(3):
        done = subprocess.run([sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, check=True)
        print(f"  first call in a process, number {number}: {float(done.stdout):.2f} s")


def test_numpy_measures_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(NUM_ROWS, 49_152)) * 3).astype(np.float32)
    keys, claimed = np.arange(NUM_ROWS, dtype=np.uint64), rng.integers(0, 49_152, NUM_ROWS)
    monkeypatch.setenv(VARIABLE, "plain")
    print()
    show("measure by numpy", lambda: measure_rows(logits, claimed, keys, SamplingRules(), clip=10.0, eos_ids=(2,)), 3)


def test_power(smollm2_folder: Path) -> None:
    judge, judged = policies(smollm2_folder)
    print(f"\n{len(judge.hidden)} contexts; tokens that aren't the judge's, and found with 32, 256, 2048 tokens")
    print(f"by their number (false positives {FLIPS_RATE:.0e}) | by the mean distance ({MEAN_RATE:.0e})")
    for way, found in judged_distances(judge, judged).items():
        print(way)
        for name, distances in found.items():
            chances = [
                "  ".join(f"{power(found[HONEST], distances, length):.4f}" for length in (32, 256, 2048))
                for power in (flips_power, mean_power)
            ]
            print(f"  {name:<24} {(distances > 0).mean():.6f}   {chances[0]} | {chances[1]}")
