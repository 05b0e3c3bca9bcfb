"""`python -m tests.mutation --count 80 --seed 1`: how many mutants of the contracts their tests notice.

Takes about half a minute a mutant. Prints each as it is tried; with `--out FILE` the JSON that docs/contracts.md is
written from. Needs Node.js and `npm ci` in contracts/. Exit code 1 where a mutant survives that isn't explained there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutation.mutant import Mutant, sample
from tests.mutation.run import Outcome, copy_contracts, try_mutant

CONTRACTS = Path(__file__).parents[2] / "contracts"
SECONDS = 600.0


def main() -> int:
    options = _parser().parse_args()
    mutants = sample(options.contracts, options.count, options.seed)
    found = []
    with tempfile.TemporaryDirectory(prefix="proofpool-mutants-") as name:
        folder = Path(name)
        copy_contracts(options.contracts, folder)
        for number, mutant in enumerate(mutants, start=1):
            outcome, by = try_mutant(folder, mutant, SECONDS)
            found.append((mutant, outcome, by))
            print(f"{number}/{len(mutants)} {outcome:<9} {mutant.name}   {by}", flush=True)
    counts = Counter(outcome for _, outcome, _ in found)
    print(f"{counts[Outcome.KILLED]} killed, {counts[Outcome.SURVIVED]} survived, {counts[Outcome.INVALID]} invalid")
    if options.out is not None:
        options.out.write_text(json.dumps([_row(*entry) for entry in found], indent=1) + "\n")
    return 1 if counts[Outcome.SURVIVED] else 0


def _row(mutant: Mutant, outcome: Outcome, by: str) -> dict[str, str]:
    return {"mutant": mutant.name, "outcome": outcome, "by": by}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Mutants of the contracts.")
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--contracts", type=Path, default=CONTRACTS)
    parser.add_argument("--out", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
