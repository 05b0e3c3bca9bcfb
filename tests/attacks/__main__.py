"""`python -m tests.attacks --model tiny`: the matrix as a table; `--out` keeps it, `--tables` puts it on the page."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from protocol.errors import UsageError
from tests.attacks.attack import Attack
from tests.attacks.document import DATA, play
from tests.attacks.matrix import Effort
from tests.attacks.pools import ARENAS, DTYPES, arena, judged_by, limits_name
from tests.attacks.report import PAGE, row, write_tables
from tests.attacks.table import ATTACKS, CONTROLS
from verifier.thresholds import read_thresholds


def main() -> int:
    asked = _asked()
    if asked.tables:
        return _renew_tables()
    torch.set_num_threads(asked.threads)
    started = time.perf_counter()
    pool = arena(asked.model, asked.dtype, asked.tasks)
    command = f"python -m tests.attacks --model {asked.model} --dtype {asked.dtype}"
    if asked.engine == "vllm":
        from tests.vllm.arena import by_vllm

        pool, command = by_vllm(pool, asked.dtype), f"{command} --engine vllm"
    if asked.limits:
        pool = judged_by(pool, read_thresholds(asked.limits))
    document = play(
        pool,
        _chosen(asked.attack),
        Effort(),
        lambda line: print(row(line), f"{time.perf_counter() - started:.0f} s", flush=True),
        command=command,
        limits=asked.limits.stem if asked.limits else limits_name(asked.model, asked.dtype),
    )
    if asked.keep:
        by = "" if asked.engine == "torch" else f".{asked.engine}"
        document.write(DATA / f"attacks.{asked.model}.{asked.dtype}{by}.json")
    if asked.out:
        document.write(asked.out)
    return 0


def _renew_tables() -> int:
    """Exit code 2 where there are tables without figures."""
    missing = write_tables(PAGE)
    for path in missing:
        print(f"not measured: {path} isn't there; a run with --keep makes it", file=sys.stderr)
    print(f"{PAGE} is renewed{' but for these' if missing else ''}")
    return 2 if missing else 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description="Every attack, caught or not.")
    parser.add_argument("--model", choices=tuple(ARENAS), default="tiny")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="what the pool's honest workers compute in")
    parser.add_argument(
        "--engine", choices=("torch", "vllm"), default="torch", help="what cheats and honest workers generate with"
    )
    parser.add_argument("--limits", type=Path, help="another threshold file than the one that comes with proofpool")
    parser.add_argument("--attack", action="append", help="only these; may be given several times")
    parser.add_argument("--tasks", type=int, help="how many tasks of 64 rollouts are tried")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--keep", action="store_true", help="write them under docs/data")
    parser.add_argument("--tables", action="store_true", help="only renew the tables of docs/verification.md")
    return parser.parse_args()


def _chosen(names: list[str] | None) -> list[Attack]:
    everything = (*CONTROLS, *ATTACKS)
    chosen = [attack for attack in everything if not names or attack.name in names]
    if not chosen:
        raise UsageError("no such attack", f"{names}", f"choose from {', '.join(a.name for a in everything)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
