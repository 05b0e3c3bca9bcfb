"""The default testnet on five seeds: does the loop learn, is it quick, is everybody treated justly.

Run: make bench ARGS='tests/bench/test_bench_testnet.py'. One run takes a few minutes on two idle cores; the
figures go into docs/benchmarks.md.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testnet.summary import Summary

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]


@pytest.mark.parametrize("seed", range(5))
def test_a_default_run_learns_in_time_and_slashes_the_cheat_alone(seed: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "protocol.cli", "testnet", "up", "--json"]
    done = subprocess.run(
        [*command, "--seed", str(seed), "--run-dir", str(tmp_path / "run")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    summary = Summary.model_validate_json(done.stdout)
    print(
        f"\n| {seed} | {summary.reward_first:.3f} | {summary.reward_last:.3f} "
        f"| {summary.reward_last - summary.reward_first:+.3f} | {summary.accepted} | {summary.rejected} "
        f"| {summary.first_accept_seconds} | {summary.wall_seconds} |"
    )
    assert summary.reward_last - summary.reward_first >= 0.10
    assert summary.honest_rejected == 0
    assert summary.first_accept_seconds is not None
    assert summary.first_accept_seconds < 45
    assert summary.wall_seconds < 360
