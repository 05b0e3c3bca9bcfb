"""Fuzzing guided by coverage, with atheris (libFuzzer): our code is instrumented as it is imported.

In: a target's name, seconds, a folder. Out: nothing is returned, the process ends; what happened is in the folder
(`watch.py`), new inputs that reach new code are in `folder/corpus`. Needs the atheris package.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

from tests.fuzz.mutation import mutate

INSTRUMENTED = ["protocol", "coordinator", "verifier", "tomllib", "eth_abi"]
MAX_BYTES = 1 << 16
MAX_RSS_MB = 2048


def run_guided(name: str, seconds: int, folder: Path, seed: int = 1) -> None:
    """Fuzz until the time is over; ends the process."""
    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.targets import TARGETS

        target = TARGETS[name]
        seeds = target.seeds()
    from tests.fuzz.watch import Watch

    watch = Watch(target, folder)
    points = [*seeds, *(path.read_bytes() for path in target.corpus())]
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
