"""The document of a run has its curve and its totals, and nothing but what the run wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.config import write_resolved
from testnet.plan import BASE_MODEL, Plan
from testnet.rules import testnet_rules as make_rules
from testnet.rules import write_rules
from tests.bench.pool_run import condensed
from tests.unit.testnet.summaries import SUMMARY


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Of two steps, whose evaluations came late and out of order."""
    write_resolved(Plan(num_steps=2, recipe={"learning_rate": 0.5}), tmp_path)
    write_rules(make_rules(BASE_MODEL), tmp_path / "config" / "rules.json")
    (tmp_path / "summary.json").write_text(SUMMARY.model_dump_json())
    held_back = {"num_held_back": 50, "num_samples": 2, "held_back_at_least_once": 0.75}
    lines = [
        {"step": 1, "mean_task_reward": 0.25, "entropy": 1.23456, "step_seconds": 2.0},
        {"step": 2, "held_back_average": 0.5, **held_back},
        {"step": 0, "held_back_average": 0.0, **held_back},
        {"step": 2, "mean_task_reward": 0.5, "entropy": 1.0, "step_seconds": 3.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_steps_and_evaluations_are_apart_and_in_order(run_dir: Path) -> None:
    found = condensed(run_dir)
    assert [(each["step"], each["mean_task_reward"]) for each in found["steps"]] == [(1, 0.25), (2, 0.5)]
    assert found["steps"][0]["entropy"] == 1.2346
    assert [(each["step"], each["average"]) for each in found["held_back"]] == [(0, 0.0), (2, 0.5)]
    last = found["held_back"][-1]
    assert (last["num_completions"], last["standard_error"]) == (100, 0.05)
    assert found["summary"]["audit"] == SUMMARY.audit and "run_dir" not in found["summary"]
    assert found["plan"]["recipe"] == {"learning_rate": 0.5} and "base_model" not in found["plan"]


def test_a_run_that_is_not_over_has_no_document(run_dir: Path) -> None:
    (run_dir / "summary.json").unlink()
    with pytest.raises(FileNotFoundError):
        condensed(run_dir)
