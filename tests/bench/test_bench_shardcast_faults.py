"""A hundred random faults of SHARDCAST's processes, and what clients came to, by kind.

python -m pytest -m bench -s tests/bench/test_bench_shardcast_faults.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.shardcast_faults import run_faults, table

NUM_TRIALS, SEED = 100, 2026


@pytest.mark.bench
@pytest.mark.timeout(1800)
def test_a_hundred_faults(tmp_path: Path) -> None:
    trials = run_faults(tmp_path, SEED, NUM_TRIALS)
    print("\n" + table(trials))
    assert [trial for trial in trials if trial.finding] == []
