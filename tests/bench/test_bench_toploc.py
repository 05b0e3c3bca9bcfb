"""CPU time of building and verifying TOPLOC proofs, one thread, random normal bf16, 128 values a chunk.

OMP_NUM_THREADS=1 python -m pytest -m bench -s tests/bench/test_bench_toploc.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import torch

from protocol.toploc.build import build_proofs, build_rollouts
from protocol.toploc.strict import verify_rollouts
from protocol.toploc.topk import Ties
from protocol.toploc.verify import verify_proofs

PREFILL_ROWS, DECODE_ROWS = 512, 512


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cpu_ms(call: Callable[[], object], repeats: int = 7) -> float:
    """The least CPU time of several calls, after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return 1000 * min(times)


def show(what: str, ties: Ties, call: Callable[[], object], num_chunks: int) -> None:
    taken = cpu_ms(call)
    print(f"{what:<44} {ties:<10} {taken:8.2f} ms {1000 * taken / num_chunks:8.0f} us a chunk")


@pytest.mark.bench
@pytest.mark.parametrize("ties", ["lowest", "torch-cpu"])
@pytest.mark.parametrize("hidden_size", [2048, 5120])
def test_published_calls(hidden_size: int, ties: Ties) -> None:
    """512 prompt tokens as one item, then 512 decode rows: 17 chunks; 16 without the prompt."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(PREFILL_ROWS + DECODE_ROWS, hidden_size, generator=generator).bfloat16()
    items, decode = [rows[:PREFILL_ROWS], *rows[PREFILL_ROWS:]], rows[PREFILL_ROWS:].contiguous()
    listed, packed = build_proofs(items, 32, 128, ties=ties), build_proofs(decode, 32, 128, True, ties=ties)
    name = f"H {hidden_size}"
    show(f"{name} build list", ties, lambda: build_proofs(items, 32, 128, ties=ties), 17)
    show(f"{name} build tensor", ties, lambda: build_proofs(decode, 32, 128, True, ties=ties), 16)
    show(f"{name} prefill proof", ties, lambda: build_proofs(items[:1], 32, 128, ties=ties), 1)
    show(f"{name} verify list", ties, lambda: verify_proofs(items, listed, 32, 128, ties=ties), 17)
    show(f"{name} verify tensor", ties, lambda: verify_proofs(decode, packed, 32, 128, True, ties=ties), 16)


@pytest.mark.bench
@pytest.mark.parametrize("ties", ["lowest", "torch-cpu"])
def test_a_batch_of_short_rollouts(ties: Ties) -> None:
    """256 rollouts of 33 to 63 rows of 128: 512 chunks, as a worker on the tiny model builds them."""
    generator = torch.Generator().manual_seed(0)
    rollouts = [torch.randn(33 + i % 31, 128, generator=generator).bfloat16() for i in range(256)]
    proofs = build_rollouts(rollouts, ties=ties)
    show("H 128 build 256 rollouts", ties, lambda: build_rollouts(rollouts, ties=ties), 512)
    show("H 128 verify 256 rollouts, strict", ties, lambda: verify_rollouts(rollouts, proofs, ties=ties), 512)
