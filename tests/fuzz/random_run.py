"""Fuzzing without coverage: seeds and corpus, mutated at random. Deterministic in its seed and number of inputs.

In: a target, and how many inputs or seconds. Out: the `Watch` over it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.mutation import mutate
from tests.fuzz.target import Target
from tests.fuzz.watch import Watch

MAX_BYTES = 1 << 16


def starting_points(target: Target) -> list[bytes]:
    return [*target.seeds(), *(path.read_bytes() for path in target.corpus())]


def random_inputs(target: Target, seed: int) -> Iterator[bytes]:
    """The starting points as they are, then mutations of them without end."""
    points = starting_points(target)
    yield from points
    rng = random.Random(f"{seed}/{target.name}")
    while True:
        point = rng.choice(points) if rng.random() < 0.97 else rng.randbytes(rng.randrange(300))
        yield mutate(point, points, rng, is_json=target.is_json, max_bytes=MAX_BYTES)


def run_random(
    target: Target,
    *,
    num_inputs: int | None = None,
    seconds: float = 60.0,
    seed: int = 0,
    folder: Path | None = None,
    patience: float = 1.0,
) -> Watch:
    """Until `num_inputs` are run, or `seconds` are over where no number is given."""
    Watch(target).run(starting_points(target)[0])  # imports and models aren't any input's fault
    watch = Watch(target, folder, patience)
    for data in random_inputs(target, seed):
        if watch.num_inputs == num_inputs:
            break
        if num_inputs is None and time.perf_counter() - watch.started > seconds:
            break
        watch.run(data)
    if folder is not None:
        watch.report()
    return watch
