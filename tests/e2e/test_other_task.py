"""`proofpool testnet up` on a task, a shape of work and a recipe of somebody's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.rules import Rules
from testnet.plan import BASE_MODEL, Plan
from testnet.summary import Summary
from verifier.thresholds import default_thresholds

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.xdist_group("e2e")]

RULES = {
    "environment": {
        "name": "reasoning_gym",
        "config": {
            "dataset": "chain_sum",
            "parameters": {"min_terms": 3, "max_terms": 4, "min_digits": 1, "max_digits": 1, "allow_negation": False},
            "num_problems": 500,
            "answer_marker": "#",
        },
    },
    "sampling": {"max_new_tokens": 48},
    "group_size": 4,
    "groups_per_task": 6,
}
PLAN = """
num_steps = 2
num_workers = 1
cheats = []
groups_per_step = 4
num_held_back = 64

[recipe]
learning_rate = 5e-5
optimizer_steps = 1
max_tokens = 1024

[recipe.objective]
kl_coefficient = 0.01

[recipe.objective.clip]
epsilon_high = 0.3

[evaluation]
evaluate_every = 1
num_held_back = 32
"""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run's."""
    folder = tmp_path_factory.mktemp("other-task")
    (folder / "rules.json").write_text(json.dumps(RULES))
    (folder / "plan.toml").write_text(PLAN)
    command = [sys.executable, "-m", "protocol.cli", "testnet", "up", "--run-dir", str(folder / "run")]
    command += ["--base-model", str(BASE_MODEL), "--rules", "rules.json", "--config", "plan.toml"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    return folder / "run"


def test_rollouts_of_that_task_are_accepted_and_trained_on(run_dir: Path) -> None:
    summary = Summary.model_validate_json((run_dir / "summary.json").read_text())
    assert (summary.policy_version, summary.num_held_back, summary.audit) == (2, 64, "ok")
    assert summary.accepted > 0 and not summary.rejected
    rules = Rules.model_validate_json((run_dir / "config" / "rules.json").read_text())
    assert rules.environment.config == RULES["environment"]["config"]  # type: ignore[index]
    assert (rules.group_size, rules.groups_per_task, rules.sampling.max_new_tokens) == (4, 6, 48)
    assert rules.thresholds == default_thresholds()


def test_the_trainers_tables_reach_the_trainer(run_dir: Path) -> None:
    config = json.loads((run_dir / "data" / "trainer" / "config.json").read_text())
    assert (config["recipe"]["learning_rate"], config["recipe"]["objective"]["kl_coefficient"]) == (5e-5, 0.01)
    assert config["recipe"]["objective"]["clip"]["epsilon_high"] == 0.3
    plan = Plan.model_validate_json((run_dir / "config.json").read_text())
    assert plan.recipe["optimizer_steps"] == config["recipe"]["optimizer_steps"] == 1
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    evaluated = {line["step"]: line["num_held_back"] for line in lines if "num_held_back" in line}
    assert evaluated == {0: 32, 1: 32, 2: 32}
