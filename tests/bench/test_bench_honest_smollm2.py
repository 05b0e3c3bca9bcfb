"""Honest work on SmolLM2: our engine generates, the transformers library's forward judges, and none of it is refused.

In: SmolLM2 (fetched once). Out: the distribution of every statistic, a rollout at a time and a submission at a time,
for 256 float32 and 64 bfloat16 rollouts of 32 tokens (a few end before) in submissions of 64. The limits are the
committed ones (`verifier/thresholds`), whose calibration saw neither these prompts nor this noise. The rollouts are
those that the attack matrix starts from (`tests/attacks/pools.py`) and are kept on disk: the first run takes 6 minutes
of one core, later ones 3.

OMP_NUM_THREADS=1 python -m pytest -m bench -s tests/bench/test_bench_honest_smollm2.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from protocol.checks.case import Case
from protocol.checks.measurements import Measurements
from tests.attacks.arena import Arena
from tests.attacks.cache import default_cache
from tests.attacks.pools import smollm2_arena
from tests.worlds.honest import SUBMISSION, Tally
from verifier.calibration.observe import Observation, judged, observations
from verifier.calibration.reference import ReferenceModel
from verifier.calibration.samples import STATISTICS
from verifier.calibration.setups import Dtype, Judge

NUM_TASKS: dict[Dtype, int] = {"float32": 4, "bfloat16": 1}
NUM_ROLLOUTS: dict[Dtype, int] = {"float32": 200, "bfloat16": 40}


@dataclass(frozen=True)
class Distribution:
    """What a statistic came to over samples of one size."""

    values: tuple[float, ...]

    def __str__(self) -> str:
        median, high = np.quantile(self.values, (0.5, 0.99))
        return f"{median:>11.3g}{high:>11.3g}{max(self.values):>11.3g}"


def judged_by_transformers(arena: Arena, dtype: Dtype) -> Iterator[tuple[Case, Measurements]]:
    """Each task's submission, and what the library's forward measures of it."""
    world, model = arena.world, ReferenceModel(arena.world.folder, dtype)
    for counter in range(NUM_TASKS[dtype]):
        case = world.case(world.rollouts(arena.draw(counter), counter), counter)
        yield case, judged(case, model, Judge("transformers", dtype, slice_tokens=2048))


def show(dtype: Dtype, samples: Sequence[Observation]) -> None:
    for size in (1, max(sample.num_rollouts for sample in samples)):
        found = [sample for sample in samples if sample.num_rollouts == size]
        num_tokens, num_flips = (sum(getattr(s, name) for s in found) for name in ("num_tokens", "num_flips"))
        print(f"\n{dtype}: {len(found)} samples of {size} rollouts, {num_tokens} tokens, {num_flips} flips")
        print(f"{'':<28}{'median':>11}{'99 %':>11}{'worst':>11}")
        for name in STATISTICS:
            print(f"{name:<28}{Distribution(tuple(getattr(sample, name) for sample in found))}")


@pytest.mark.bench
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_honest_rollout_is_refused_by_transformers(smollm2_folder: Path, dtype: Dtype) -> None:
    torch.set_num_threads(1)
    arena = smollm2_arena(dtype, NUM_TASKS[dtype], default_cache())
    tally, samples = Tally(), []
    for case, found in judged_by_transformers(arena, dtype):
        tally.add((f"torch {dtype}", f"transformers {dtype}"), case, found, arena.rules.thresholds)
        samples += observations(case, found, SUBMISSION)
    show(dtype, samples)
    tally.show()
    assert tally.num_rollouts >= NUM_ROLLOUTS[dtype]
    assert not any(sample.num_degenerate for sample in samples)
    assert not tally.submissions_refused
    assert not tally.rollouts_refused
