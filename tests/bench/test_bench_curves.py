"""What the papers say of lag, clip and filters, on the small model and five seeds; figures are in docs/training.md.

`make bench ARGS='tests/bench/test_bench_curves.py'`: about an hour of one core the first time; finished runs
(runs/curves) aren't run again. Writes docs/data/curves.json.
"""

from __future__ import annotations

import pytest

from tests.bench.curves.arms import EXPERIMENTS
from tests.bench.curves.document import DATA, Document
from tests.bench.curves.runs import FOLDER, collect, run_all

pytestmark = [pytest.mark.bench, pytest.mark.timeout(0)]

NUM_SEEDS = 5


@pytest.fixture(scope="module")
def document() -> Document:
    run_all(tuple(EXPERIMENTS), NUM_SEEDS, FOLDER)
    found = collect(NUM_SEEDS, FOLDER)
    found.write(DATA)
    return found
