"""Fuzzing guided by coverage, with atheris (libFuzzer): our code is instrumented as it is imported.

In: a target, seconds, a folder. Out: nothing is returned, the process ends; what happened is in the folder
(`watch.py`), new inputs that reach new code are in `folder/corpus`. Needs the atheris package.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

from tests.fuzz.mutation import mutate
from tests.fuzz.random_run import starting_points
from tests.fuzz.target import Target
from tests.fuzz.watch import Watch

INSTRUMENTED = ["protocol", "coordinator", "verifier", "tomllib", "eth_abi"]
MAX_BYTES = 1 << 16
MAX_RSS_MB = 2048


def instrumented_targets() -> dict[str, Target]:
    """The table, with our code instrumented; nothing of it may have been imported before."""
    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.targets import TARGETS
    return TARGETS


def run_guided(target: Target, seconds: int, folder: Path, seed: int) -> None:
    """Fuzz until the time is over; ends the process."""
    watch = Watch(target, folder)
    points = starting_points(target)
    Watch(target).run(points[0])  # imports and models aren't any input's fault
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    for number, data in enumerate(points):
        (corpus / f"seed-{number}").write_bytes(data)

    def mutator(data: bytes, max_size: int, number: int) -> bytes:
        rng = random.Random(number)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(data, max_size))
        return mutate(data, points, rng, is_json=target.is_json, max_bytes=max_size)

    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MAX_BYTES}",
        f"-rss_limit_mb={MAX_RSS_MB}",
        f"-timeout={int(10 * target.max_seconds)}",
        f"-seed={seed}",
        f"-artifact_prefix={folder}/native-",
        "-print_final_stats=1",
        "-reload=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], watch.run, custom_mutator=mutator)
    atheris.Fuzz()
