"""A testnet whose workers, honest or not, generate with vLLM, in the environment that `make vllm` makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testnet.accounts import Accounts
from testnet.summary import Summary

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

PYTHON = Path(__file__).resolve().parents[2] / ".venv-vllm" / "bin" / "python"
NUM_STEPS = 2


@pytest.mark.skipif(not PYTHON.exists(), reason="vLLM isn't installed: make vllm")
def test_vllm_workers_are_accepted_follow_new_weights_and_are_caught_cheating(
    tmp_path: Path, read_history: Callable[[Path], Any], left_behind: Callable[[Path], list[str]]
) -> None:
    run_dir = tmp_path / "run"
    command = [sys.executable, "-m", "protocol.cli", "testnet", "up", "--json", "--run-dir", str(run_dir)]
    command += ["--steps", str(NUM_STEPS), "--workers", "1", "--verifiers", "2", "--cheat", "wrong-model"]
    command += ["--engine", "vllm", "--worker-python", str(PYTHON)]
    # Without lag each step takes work of its own version only.
    environment = os.environ | {"PROOFPOOL_TESTNET_GROUPS_PER_STEP": "8", "PROOFPOOL_TESTNET_MAX_ASYNC": "0"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    summary, history = Summary.model_validate_json(ended.stdout), read_history(run_dir)
    assert (summary.policy_version, summary.honest_rejected, summary.audit) == (NUM_STEPS, 0, "ok")
    assert all(summary.checks.values())
    honest, cheat = (provider.node.address for provider in Accounts.of(0, 1, 2, ("wrong-model",)).providers)
    versions = {event["subject"]: event["data"]["policy_version"] for event in history.of("task.leased")}
    accepted = {versions[e["data"]["task_id"]] for e in history.by(honest, "submission.accepted")}
    assert accepted >= set(range(NUM_STEPS)), "new weights must have been worked with"
    assert history.by(cheat, "submission.rejected") and not history.by(cheat, "submission.accepted")
    assert num_started(run_dir / "logs" / "worker-0.log") == 1
    assert not left_behind(run_dir)


def num_started(log: Path) -> int:
    """How often this worker was started: new weights need no restart."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return sum(line["event"] == "worker.started" for line in lines)
