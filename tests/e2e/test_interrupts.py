"""Ctrl-C and SIGTERM end a testnet at any stage: exit code 130, nothing left running."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.xdist_group("e2e")]


@pytest.mark.parametrize(
    ("moment", "number"),
    [("chain, contracts", signal.SIGTERM), ("metrics.jsonl", signal.SIGINT)],
    ids=["start", "work"],
)
def test_an_interrupted_run_leaves_nothing_behind(
    tmp_path: Path, left_behind: Callable[[Path], list[str]], moment: str, number: signal.Signals
) -> None:
    run_dir = tmp_path / "run"
    command = [sys.executable, "-m", "protocol.cli", "testnet", "up", "--json", "--run-dir", str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = next(line for line in process.stderr if moment in line)
        process.send_signal(number)
        rest, out = process.stderr.read(), process.communicate()[0]
    assert told
    assert process.returncode == 130
    assert "interrupted: ending every process" in rest
    assert "Traceback" not in rest
    assert not out
    assert not left_behind(run_dir)
