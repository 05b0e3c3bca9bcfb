"""CPU time of building and verifying TOPLOC proofs, one core, random normal bf16, 128 values a chunk.

    OMP_NUM_THREADS=1 python -m pytest -m bench -s tests/bench/test_bench_toploc.py

With TOPLOC_PYTHON=/path/to/python, an interpreter that has toploc 0.1.6 and torch, the published library is timed on
the same activations in the same run, its bytes are compared, and the table shows how many times faster this one is.
toploc's wheels don't fit a torch of today; its source does, in an environment with torch, numpy, ninja and setuptools:
`pip install --no-deps --no-binary toploc --no-build-isolation toploc==0.1.6`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from protocol import kernels
from protocol.toploc.build import build_proofs_bytes, build_rollouts
from protocol.toploc.strict import verify_rollouts
from protocol.toploc.topk import Ties
from protocol.toploc.verify import verify_proofs_bytes
from tests.bench.timing import least_cpu_ms

PREFILL_ROWS, DECODE_ROWS = 512, 512
ROUNDS = 8
REFERENCE = Path(__file__).parent / "toploc_reference.py"
NUM_CHUNKS = {"build list": 17, "build tensor": 16, "prefill proof": 1, "verify list": 17, "verify tensor": 16}
PATHS = {"kernels": "", "plain": "plain"}


@pytest.fixture(autouse=True)
def one_core() -> Iterator[None]:
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, {max(cores)})
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    os.sched_setaffinity(0, cores)


def make_activations(num_rows: int, hidden_size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(num_rows, hidden_size, generator=generator).bfloat16()


def calls(rows: torch.Tensor, ties: Ties) -> tuple[dict[str, Callable[[], object]], list[bytes]]:
    """What is timed, and all proofs: 512 prompt tokens as one item, then 512 decode rows."""
    items, decode = [rows[:PREFILL_ROWS], *rows[PREFILL_ROWS:]], rows[PREFILL_ROWS:].contiguous()
    listed = build_proofs_bytes(items, 32, 128, ties=ties)
    packed = build_proofs_bytes(decode, 32, 128, True, ties=ties)
    timed: dict[str, Callable[[], object]] = {
        "build list": lambda: build_proofs_bytes(items, 32, 128, ties=ties),
        "build tensor": lambda: build_proofs_bytes(decode, 32, 128, True, ties=ties),
        "prefill proof": lambda: build_proofs_bytes(items[:1], 32, 128, ties=ties),
        "verify list": lambda: verify_proofs_bytes(items, listed, 32, 128, ties=ties),
        "verify tensor": lambda: verify_proofs_bytes(decode, packed, 32, 128, True, ties=ties),
    }
    return timed, listed + packed


def reference(rows: torch.Tensor, folder: Path) -> dict[str, Any] | None:
    """What toploc_reference.py says, or None without an interpreter for it."""
    python = os.environ.get("TOPLOC_PYTHON")
    if not python:
        return None
    np.save(folder / "activations.npy", rows.view(torch.uint16).numpy())
    command = [python, str(REFERENCE), str(folder / "activations.npy"), str(PREFILL_ROWS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.bench
@pytest.mark.parametrize("hidden_size", [2048, 5120])
def test_published_calls(hidden_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By turns, the least of all rounds: a machine that is slower for a while slows all columns."""
    rows = make_activations(PREFILL_ROWS + DECODE_ROWS, hidden_size)
    columns: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS):
        published = reference(rows, tmp_path)
        if published:
            keep_least(columns, "toploc 0.1.6", published["times"])
        for path, value in PATHS.items():
            monkeypatch.setenv(kernels.VARIABLE, value)
            for ties in ("lowest", "torch-cpu"):
                timed, proofs = calls(rows, ties)
                keep_least(columns, f"{path}, {ties}", {what: least_cpu_ms(call) for what, call in timed.items()})
                if published and ties == "torch-cpu":
                    assert [proof.hex() for proof in proofs] == published["proofs"]
    print(f"\nhidden size {hidden_size}: ms a call" + ", and how many times faster than toploc 0.1.6" * bool(published))
    show(columns)


def keep_least(columns: dict[str, dict[str, float]], name: str, times: dict[str, float]) -> None:
    known = columns.setdefault(name, times)
    columns[name] = {what: min(known[what], taken) for what, taken in times.items()}


def show(columns: dict[str, dict[str, float]]) -> None:
    baseline = columns.get("toploc 0.1.6")
    print(f"| call | chunks | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 2) + "|")
    for what, num_chunks in NUM_CHUNKS.items():
        cells = [
            f"{times[what]:.2f}" + (f" ({baseline[what] / times[what]:.1f})" if baseline and times != baseline else "")
            for times in columns.values()
        ]
        print(f"| {what} | {num_chunks} | {' | '.join(cells)} |")


@pytest.mark.bench
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("ties", ["lowest", "torch-cpu"])
@pytest.mark.parametrize("hidden_size", [128, 576])
def test_a_batch_of_short_rollouts(hidden_size: int, ties: Ties, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """256 rollouts of 33 to 63 rows: 512 chunks, as a worker on a small model builds them."""
    monkeypatch.setenv(kernels.VARIABLE, PATHS[path])
    rollouts = [make_activations(33 + i % 31, hidden_size) for i in range(256)]
    proofs = build_rollouts(rollouts, ties=ties)
    build = least_cpu_ms(lambda: build_rollouts(rollouts, ties=ties))
    verify = least_cpu_ms(lambda: verify_rollouts(rollouts, proofs, ties=ties))
    print(f"\nH {hidden_size}, {ties}, {path}: {build:.1f} ms to build 512 chunks, {verify:.1f} ms to verify strictly")


@pytest.mark.bench
def test_first_call() -> None:
    """A fresh process, kernels on disk: importing numba, loading them, one proof."""
    kernels.warm()
    code = (
        "import time, numpy as np; start = time.perf_counter();"
        "from protocol.toploc.build import build_rollouts;"
        "build_rollouts([np.ones((32, 128), np.uint16)]); print(time.perf_counter() - start)"
    )
    done = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True) for _ in range(3)]
    print(f"\nfirst call: {min(float(one.stdout) for one in done):.2f} s")
