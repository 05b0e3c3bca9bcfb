"""Honest rollouts in bulk, on every way of computing: none is refused. The bench has 100,000 (tests/bench)."""

from __future__ import annotations

import pytest

from tests.worlds.honest import judge_in_processes, judge_share
from verifier.calibration.setups import Dtype

NUM_ROLLOUTS = {"float32": 10_000, "bfloat16": 10_000}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_none_of_20_000_is_refused(dtype: Dtype) -> None:
    tally = judge_in_processes(dtype, NUM_ROLLOUTS[dtype], num_processes=2)
    assert tally.num_rollouts >= NUM_ROLLOUTS[dtype]
    assert len(tally.rollouts) > 12
    assert not tally.submissions_refused
    assert not tally.rollouts_refused


def test_what_isnt_honest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bfloat16 engine under float32's limits."""
    from tests.worlds import honest
    from verifier.thresholds import thresholds_of

    monkeypatch.setattr(honest, "thresholds_of", lambda name: thresholds_of("testnet.float32"))
    monkeypatch.setattr(honest, "BATCH_SIZES", (64,))
    tally = judge_share("bfloat16", 64, generators=["torch"])
    assert tally.submissions_refused["toploc_mantissas"] == 1
    assert tally.rollouts_refused["toploc_mantissas"] > 8
