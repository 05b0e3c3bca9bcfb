"""Twenty datasets of reasoning_gym through a whole testnet: every honest rollout of each is accepted.

The model answers noise, so what is tried is everything but learning: prompts of all kinds through a chat template,
derived again by the verifier from the seed, and rewards of all twenty scorers run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.rollouts import Rollout, read_rollouts
from testnet.summary import Summary
from tests.worlds.bytes_model import save_bytes_model

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("e2e")]

DATASETS = (
    "basic_arithmetic", "bitwise_arithmetic", "calendar_arithmetic", "chain_sum", "complex_arithmetic", "count_bits",
    "decimal_chain_sum", "dice", "fraction_simplification", "gcd", "lcm", "leg_counting", "letter_counting",
    "number_filtering", "number_sorting", "power_function", "prime_factorization", "products", "simple_equations",
    "time_intervals",
)  # fmt: skip
RULES = {
    "environment": {
        "name": "reasoning_gym",
        "config": {
            "dataset": "composite",
            "parameters": {"datasets": [{"name": name, "weight": 1} for name in DATASETS]},
            "num_problems": 400,
            "chat_template": True,
            "system_prompt": "Answer with a number.",
            "length_suffix": " ({target})",
            "reward": "score",
        },
    },
    "lengths": {"targets": [2, 4], "penalty_per_token": 0.0003},
    "sampling": {"max_new_tokens": 8},
    "group_size": 4,
    "groups_per_task": 60,
}
PLAN = """
num_steps = 2
num_workers = 2
cheats = []
groups_per_step = 8
num_held_back = 16

[recipe]
optimizer_steps = 1
max_tokens = 4096
"""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run's."""
    folder = tmp_path_factory.mktemp("twenty")
    save_bytes_model(folder / "model")
    (folder / "rules.json").write_text(json.dumps(RULES))
    (folder / "plan.toml").write_text(PLAN)
    command = [sys.executable, "-m", "protocol.cli", "testnet", "up", "--run-dir", str(folder / "run")]
    command += ["--base-model", "model", "--rules", "rules.json", "--config", "plan.toml"]
    command += ["--thresholds", "testnet.float32"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    return folder / "run"


def test_no_honest_rollout_of_any_dataset_is_rejected(run_dir: Path) -> None:
    summary = Summary.model_validate_json((run_dir / "summary.json").read_text())
    assert (summary.policy_version, summary.audit) == (2, "ok")
    assert summary.accepted > 0 and not summary.rejected and not summary.slashed
    asked = Counter(rollout.task_type for rollout in _delivered(run_dir))
    assert set(asked) == {f"reasoning_gym/{name}" for name in DATASETS}


def test_some_answers_are_worth_something(run_dir: Path) -> None:
    """Noise that is right now and then: without it no group would have been trained on."""
    rewards = {rollout.task_reward for rollout in _delivered(run_dir)}
    assert 0.0 in rewards and len(rewards) > 2
    assert all(rollout.target_length in (2, 4) for rollout in _delivered(run_dir))


def _delivered(run_dir: Path) -> Iterator[Rollout]:
    """The rows of all submissions that the coordinator keeps."""
    files = (path for path in (run_dir / "data" / "coordinator" / "blobs").rglob("*") if path.is_file())
    for path in files:
        if (data := path.read_bytes()).startswith(b"PAR1"):
            yield from read_rollouts(data, max_rows=10_000, max_tokens=8_192)[1]
