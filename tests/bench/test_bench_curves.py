"""What INTELLECT-2 says of lag, clip and filters, on the testnet's model and five seeds (docs/training.md).

`make bench ARGS='tests/bench/test_bench_curves.py'`: 20 CPU-minutes the first time. What is finished (runs/curves)
isn't run again. Writes docs/data/curves.json. Bounds are wide enough for another machine's rounding.
"""

from __future__ import annotations

import statistics

import pytest

from tests.bench.curves.arms import CLIPS, EXPERIMENTS
from tests.bench.curves.comparison import COMPARISONS, standings
from tests.bench.curves.document import DATA, Document
from tests.bench.curves.report import clip_table, standings_table
from tests.bench.curves.runs import FOLDER, collect, run_all

pytestmark = [pytest.mark.bench, pytest.mark.timeout(0)]

NUM_SEEDS = 5
BASE = 0.352


@pytest.fixture(scope="module")
def document() -> Document:
    run_all(tuple(EXPERIMENTS), NUM_SEEDS, FOLDER)
    found = collect(NUM_SEEDS, FOLDER)
    found.write(DATA)
    return found


@pytest.mark.parametrize("name", ["lag", "filter", "filter-steps"])
def test_every_arm_learns_and_none_is_far_from_the_others(document: Document, name: str) -> None:
    print(f"\n{name}\n{standings_table(document, COMPARISONS[name])}")
    for one in standings(document, COMPARISONS[name]):
        assert one.end.value - BASE > 0.15
        for found in (one.course_difference, one.end_difference):
            assert found is None or abs(found.value) < 0.04


def test_filtered_problems_take_fewer_rollouts_on_every_seed(document: Document) -> None:
    plain, filtered = (document.curves[arm] for arm in ("lag-2", "offline-filter"))
    assert all(filtered[seed].generated[-1] < plain[seed].generated[-1] for seed in range(NUM_SEEDS))


def test_two_sides_keep_gradients_small_and_one_does_not(document: Document) -> None:
    print(f"\n{clip_table(document)}")
    norms = {arm.name: [max(curve.grad_norm) for curve in document.curves[arm.name].values()] for arm in CLIPS}
    lasts = {arm.name: [curve.pass_rates[-1] for curve in document.curves[arm.name].values()] for arm in CLIPS}
    for one, two in ((CLIPS[0].name, CLIPS[1].name), (CLIPS[2].name, CLIPS[3].name)):
        assert max(norms[two]) < 10 < max(norms[one])
        assert statistics.fmean(lasts[two]) > statistics.fmean(lasts[one])
