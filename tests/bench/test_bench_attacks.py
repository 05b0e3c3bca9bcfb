"""The attack matrix on a real model; its figures are those of docs/verification.md. About 20 minutes on two cores.

Every lie is caught in each file, but for those that are close to honest work: anywhere (`table.py`), or where a pool's
own noise hides them (`pools.py`).

`make bench ARGS='tests/bench/test_bench_attacks.py'`; what is drawn once is kept (`tests/attacks/cache.py`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.document import play
from tests.attacks.matrix import Effort, Line
from tests.attacks.pools import DTYPES, arena
from tests.attacks.report import row
from tests.attacks.table import ATTACKS, CONTROLS

pytestmark = [pytest.mark.bench, pytest.mark.timeout(0)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_lie_is_caught_on_smollm2(smollm2_folder: Path, dtype: str) -> None:
    pool = arena("smollm2", dtype)
    lines = {line.attack: line for line in play(pool, (*CONTROLS, *ATTACKS), Effort(), show).lines}
    assert all(lines[c.name].submissions.share == 0.0 for c in CONTROLS if c.name not in pool.left_out)
    missed = {attack.name for attack in ATTACKS if lines[attack.name].submissions.share != 1.0 and not attack.close}
    assert missed <= pool.hides


def show(line: Line) -> None:
    print(row(line), flush=True)
