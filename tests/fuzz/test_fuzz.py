"""Every parser against inputs that nobody wrote: the same ones each time. For longer: `python -m tests.fuzz`."""

from __future__ import annotations

import pytest

from tests.fuzz.random_run import run_random
from tests.fuzz.targets import TARGETS

SECONDS = 120.0
"""For all targets together."""


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_ends_in_an_error_that_nobody_documents(name: str) -> None:
    watch = run_random(TARGETS[name], seconds=SECONDS / len(TARGETS), seed=1, patience=10.0)
    assert watch.num_inputs > 10
    assert not watch.findings
