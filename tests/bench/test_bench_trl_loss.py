"""TRL's own answers to the cases of `tests/unit/trainer/test_trl_loss.py`: still the committed ones.

Makes the environment of `tests/bench/trl` the first time (some minutes, a package registry), then takes half a minute.

    python -m pytest -m bench tests/bench/test_bench_trl_loss.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.trl.environment import ask, trl_python
from tests.unit.trainer.test_trl_loss import ANSWERS, assert_same

__all__ = ["trl_python"]


@pytest.mark.bench
@pytest.mark.timeout(1800)
def test_trl_says_what_is_committed(trl_python: Path) -> None:
    answers = ask(trl_python, "loss")
    assert [answer["name"] for answer in answers] == list(ANSWERS)
    for answer in answers:
        assert_same(answer, ANSWERS[answer["name"]])
        assert answer["entropy"] == pytest.approx(ANSWERS[answer["name"]]["entropy"])
