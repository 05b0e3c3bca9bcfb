"""A stage says what it does at its start, and again while it lasts."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from testnet.stage import stage
from tests.unit.steps import Steps


def test_a_long_stage_is_never_silent() -> None:
    clock, out = Steps(2), io.StringIO()
    with stage("audit", Console(file=out), clock):
        assert clock.is_through.wait(10)
    assert out.getvalue().splitlines() == ["audit …", "waiting for audit since 30 s", "waiting for audit since 60 s"]


def test_a_stage_that_fails_goes_silent_and_lets_the_error_pass() -> None:
    clock, out = Steps(0), io.StringIO()
    with pytest.raises(KeyError), stage("audit", Console(file=out), clock):
        raise KeyError
    assert out.getvalue().splitlines() == ["audit …"]
    assert not [thread for thread in threading.enumerate() if "_repeat" in thread.name]
