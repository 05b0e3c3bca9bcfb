"""`python -m tests.mutation --count 80 --seed 1`: how many mutants of the contracts their tests notice.

Takes about ten CPU-seconds a mutant. Prints each as it is tried; with `--out FILE` also as JSON, from which the next
run goes on. Needs Node.js and `npm ci` in contracts/. Exit code 1 where a mutant survives.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutation.mutant import sample
from tests.mutation.run import Outcome, copy_contracts, try_mutant, try_unchanged

CONTRACTS = Path(__file__).parents[2] / "contracts"
SECONDS = 1800.0


def main() -> int:
    options = _parser().parse_args()
    mutants = sample(options.contracts, options.count, options.seed)
    known = _known(options.out)
    with tempfile.TemporaryDirectory(prefix="proofpool-mutants-") as name:
        folder = Path(name)
        copy_contracts(options.contracts, folder)
        try_unchanged(folder, SECONDS)
        for number, mutant in enumerate(mutants, start=1):
            if mutant.name not in known:
                known[mutant.name] = try_mutant(folder, mutant, SECONDS)
                _save(options.out, known)
            outcome, by = known[mutant.name]
            print(f"{number}/{len(mutants)} {outcome:<9} {mutant.name}   {by}", flush=True)
    counts = Counter(known[mutant.name][0] for mutant in mutants)
    print(f"{counts[Outcome.KILLED]} killed, {counts[Outcome.SURVIVED]} survived, {counts[Outcome.INVALID]} invalid")
    return 1 if counts[Outcome.SURVIVED] else 0


def _known(path: Path | None) -> dict[str, tuple[Outcome, str]]:
    """What an earlier run has tried already."""
    if path is None or not path.exists():
        return {}
    return {row["mutant"]: (Outcome(row["outcome"]), row["by"]) for row in json.loads(path.read_text())}


def _save(path: Path | None, known: dict[str, tuple[Outcome, str]]) -> None:
    if path is None:
        return
    rows = [{"mutant": name, "outcome": outcome, "by": by} for name, (outcome, by) in known.items()]
    path.write_text(json.dumps(rows, indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Mutants of the contracts.")
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--contracts", type=Path, default=CONTRACTS)
    parser.add_argument("--out", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
