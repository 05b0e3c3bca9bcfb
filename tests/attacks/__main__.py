"""`python -m tests.attacks --model tiny`: the matrix as a table, or as JSON with `--out`."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from protocol.errors import UsageError
from tests.attacks.matrix import Effort, lines
from tests.attacks.pools import ARENAS, DTYPES, arena
from tests.attacks.report import row
from tests.attacks.table import ATTACKS, CONTROLS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description="Every attack, caught or not.")
    parser.add_argument("--model", choices=tuple(ARENAS), default="tiny")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="what the pool's honest workers compute in")
    parser.add_argument("--attack", action="append", help="only these; may be given several times")
    parser.add_argument("--tasks", type=int, help="how many tasks of 64 rollouts are tried")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the lines as JSON")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    everything = (*CONTROLS, *ATTACKS)
    chosen = [attack for attack in everything if not asked.attack or attack.name in asked.attack]
    if not chosen:
        raise UsageError("no such attack", str(asked.attack), f"choose from {[a.name for a in everything]}")
    pool, found = arena(asked.model, asked.dtype, asked.tasks), []
    started = time.perf_counter()
    for line in lines(pool, chosen, Effort()):
        found.append(line)
        print(row(line), f"{time.perf_counter() - started:.0f} s", flush=True)
    if asked.out:
        document = {"pool": pool.title, "lines": [line.document() for line in found]}
        asked.out.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
