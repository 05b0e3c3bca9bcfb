"""100,000 honest rollouts of the testnet's model, and none of them refused (docs/thresholds.md).

Half of them in float32, half in bfloat16; batch sizes 1, 8, 64 and 256, our engine and transformers' decoding,
judged by our packed pass on several kernels and by transformers' forward. Takes 12 minutes of one idle core:

    OMP_NUM_THREADS=1 python -m pytest -m bench -s tests/bench/test_bench_honest.py
"""

from __future__ import annotations

import pytest

from tests.worlds.honest import judge_share
from verifier.calibration.setups import Dtype

NUM_ROLLOUTS = 50_000


@pytest.mark.bench
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_honest_rollout_is_refused(dtype: Dtype) -> None:
    tally = judge_share(dtype, NUM_ROLLOUTS)
    print(f"\n{dtype}")
    tally.show()
    assert tally.num_rollouts >= NUM_ROLLOUTS
    assert not tally.submissions_refused
    assert not tally.rollouts_refused
