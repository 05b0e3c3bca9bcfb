"""`python -m tests.bench.curves`: run what isn't run yet, keep the curves, draw the figures, write the tables.

python -m tests.bench.curves                                  # 20 CPU-minutes of one core
python -m tests.bench.curves --experiment lag --seeds 2       # a part
python -m tests.bench.curves --tables                         # tables and figures anew, from docs/data/curves.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.bench.curves.arms import EXPERIMENTS
from tests.bench.curves.document import DATA, read_document
from tests.bench.curves.report import PAGE, draw_figures, renewed
from tests.bench.curves.runs import FOLDER, collect, run_all


def main() -> int:
    asked = _asked()
    if not asked.tables:
        run_all(asked.experiment or tuple(EXPERIMENTS), asked.seeds, asked.folder)
        collect(asked.seeds, asked.folder).write(DATA)
        print(f"{DATA} is written")
    document = read_document()
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), document), encoding="utf-8")
    for path in (PAGE, *draw_figures(document)):
        print(f"{path} is renewed")
    return 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.curves", description="Arms by seeds.")
    parser.add_argument("--experiment", action="append", choices=tuple(EXPERIMENTS), help="only these are run")
    parser.add_argument("--seeds", type=int, default=5, help="0 to one less than this")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where runs lie; finished ones aren't run again")
    parser.add_argument("--tables", action="store_true", help="run nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
