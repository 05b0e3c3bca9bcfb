"""Patches between policy versions of a real training: how much changes, how small it gets, how fast.

In: the tiny model and SmolLM2 (fetched once), `policy_versions.py`. Out: on stdout, for each learning rate and kind of
masters: changed share, full bytes over patch bytes, and GB of model per CPU second of

    diff    making the patch; "result": with the new file's BLAKE3 taken; "both": with the base's as well
    apply   base file and patch to a file; "hash": with the result's BLAKE3
    live    finding what changes in live tensors, BLAKE3 included; "write": writing it there

The best of three on one thread; files in memory (/dev/shm) where there is such a place. Four minutes
in all on two cores that nobody else uses.

python -m pytest -m bench -s tests/bench/test_bench_patches.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from protocol.shardcast.patches import apply_patches, decode, diff, file_hash, write_changes
from tests.bench.policy_versions import Pair, Weights, smollm2_world, tiny_world, version_pairs
from tests.unit.verifier.verifier_world import World

REPEATS = 3
LEAST_RATIO, LEAST_SPEED = 100, 1e9
"""At learning rates up to 1e-6, and of the model's bytes each CPU second."""
HEAD = ("lr", "masters", "changed", "ratio", "diff", "result", "both", "apply", "hash", "live", "write")


@pytest.fixture
def folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.bench
@pytest.mark.timeout(3600)
def test_patches_of_the_tiny_model(folder: Path) -> None:
    for pair, (ratio, _) in measured(folder, tiny_world()):
        assert ratio >= LEAST_RATIO or pair.rate > 1e-6 or pair.masters == "steady"


@pytest.mark.bench
@pytest.mark.timeout(3600)
def test_patches_of_smollm2(folder: Path, smollm2_folder: Path) -> None:
    for pair, (ratio, speeds) in measured(folder, smollm2_world(smollm2_folder)):
        if pair.rate <= 1e-6 and pair.masters != "steady":
            assert ratio >= LEAST_RATIO
            assert min(speeds.values()) >= LEAST_SPEED


def measured(folder: Path, world: World) -> Iterator[tuple[Pair, tuple[float, dict[str, float]]]]:
    print("\n" + "".join(f"{word:>10}" for word in HEAD))
    for pair in version_pairs(world):
        changed, ratio, speeds = figures(folder, pair.old, pair.new)
        print(f"{pair.rate:>10.0e}{pair.masters:>10}{changed:>10.3%}{ratio:>10.1f}", end="")
        print("".join(f"{speeds[name] / 1e9:>10.2f}" for name in HEAD[4:]), flush=True)
        yield pair, (ratio, speeds)


def figures(folder: Path, old: Weights, new: Weights) -> tuple[float, float, dict[str, float]]:
    """Changed share, full bytes over patch bytes, and bytes a CPU second by name."""
    base, after, patch, result = (folder / name for name in ("base", "new", "patch", "result"))
    save_file(old, base)
    save_file(new, after)
    names = {"base_version": 0, "policy_version": 1}
    hashes = {"base_hash": file_hash(base), "result_hash": file_hash(after)}
    summary = diff(base, after, patch, **names, **hashes)
    live = {name: tensor.contiguous().view(torch.int16).numpy() for name, tensor in old.items()}
    changes = decode(patch, live)
    calls: dict[str, Callable[[], object]] = {
        "diff": lambda: diff(base, after, patch, **names, **hashes),
        "result": lambda: diff(base, after, patch, **names, base_hash=hashes["base_hash"]),
        "both": lambda: diff(base, after, patch, **names),
        "apply": lambda: apply_patches(base, [patch], result, check=False),
        "hash": lambda: apply_patches(base, [patch], result),
        "live": lambda: decode(patch, live),
        "write": lambda: write_changes(changes, live),
    }
    num_bytes = summary.header.result_bytes
    speeds = {name: num_bytes / cpu_seconds(call, result) for name, call in calls.items()}
    apply_patches(base, [patch], result)
    assert result.read_bytes() == after.read_bytes()
    assert all(np.array_equal(live[name], new[name].view(torch.int16).numpy()) for name in new)
    return summary.num_changed / summary.num_words, num_bytes / summary.patch_bytes, speeds


def cpu_seconds(call: Callable[[], object], made: Path) -> float:
    """The least of several calls, each without what it makes. All threads of the process count."""
    times = []
    for _ in range(REPEATS):
        made.unlink(missing_ok=True)
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)
