"""What a run's lines come to: bottleneck, lag, what wasn't trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from protocol.documents import shape_of
from protocol.errors import UsageError
from trainer.commands import app
from trainer.run_status import read_lines, status_of


def line(step: int, *, batch: float = 0, learn: float = 0, publish: float = 0, **more: Any) -> dict[str, Any]:
    return {
        "step": step,
        "waited_seconds": batch,
        "unpublished_seconds": 0.0,
        "learn_seconds": learn,
        "waited_to_publish_seconds": publish,
        "waited_to_evaluate_seconds": 0.0,
        "save_seconds": 0.0,
        "step_seconds": batch + learn + publish + 1,
        "num_rollouts": 8,
        "num_groups": 2,
        **more,
    }


def test_the_bottleneck_is_over_all_steps_and_each_step_has_its_own() -> None:
    status = status_of("r", [line(1, batch=3, learn=5), line(2, batch=9, learn=5), line(3, learn=1, publish=2)])
    assert status.bottleneck == "batch"
    assert status.seconds == {"batch": 12, "publishing": 2, "evaluation": 0, "training": 11}
    assert status.num_steps_by_bottleneck == {"training": 1, "batch": 1, "publishing": 1}
    assert status.other_seconds == 3
    assert (status.policy_version, status.num_steps, status.num_rollouts) == (3, 3, 24)
    assert "it waits for batches" in status.lines()[1]
    assert any("batch" in text and "12.0 s" in text and "bottleneck of 1 steps" in text for text in status.lines())


def test_lags_are_counted_over_all_rollouts() -> None:
    lines = [line(1, policy_lag_counts={"0": 8}), line(2, policy_lag_counts={"0": 2, "1": 4, "10": 2})]
    lag = status_of("r", lines).lag
    assert lag is not None
    assert (lag.least, lag.mean, lag.most) == (0, 1.5, 10)
    assert lag.num_rollouts == {"0": 10, "1": 4, "10": 2}
    assert status_of("r", [line(1)]).lag is None
    assert status_of("r", [line(1, policy_lag_counts=None)]).lag is None


def test_what_was_not_trained_on_is_told_in_groups_and_rollouts() -> None:
    groups = {"consumed": 9, "pending": 1, "stale": 3, "no_variance": 5}
    status = status_of("r", [line(1, num_groups_by_use={"stale": 1}), line(2, num_groups_by_use=groups), line(3)])
    assert status.num_unused_groups == {"stale": 3, "no_variance": 5}
    assert status.num_unused_rollouts == {"stale": 12, "no_variance": 20}
    assert "accepted, not trained on: 3 groups (12 rollouts), stale" in status.lines()


def test_of_a_step_that_was_taken_twice_the_later_line_counts_and_evaluations_are_no_steps() -> None:
    evaluation = {"step": 2, "held_back_average": 0.5}
    status = status_of("r", [line(1, learn=1), line(2, learn=50), evaluation, line(2, learn=2)])
    assert status.num_steps == 2 and status.seconds["training"] == 3
    assert status.newest["held_back_average"] == 0.5


def test_a_rehearsals_lines_have_no_waits_and_are_read_all_the_same() -> None:
    status = status_of("r", [{"step": 0, "seconds": 0.0}, {"step": 1, "seconds": 2.0, "num_rollouts": 8}])
    assert status.bottleneck is None and status.num_unused_rollouts == {}
    assert status.lines() == ["r: policy version 1, 1 steps, 8 rollouts"]


def test_the_command_prints_it_for_people_and_as_its_document(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line(1, batch=3)) + "\n")
    told = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert told.exit_code == 0 and "waits for batches" in told.stdout
    document = json.loads(CliRunner().invoke(app, ["status", str(tmp_path), "--json"]).stdout)
    assert document["bottleneck"] == "batch"
    shape_of("trainer status").validate_python(document)


def test_no_run_and_an_empty_one_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run"):
        read_lines(tmp_path)
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(UsageError, match="nothing to tell yet"):
        read_lines(tmp_path)


def test_a_run_that_has_begun_and_taken_no_step_isnt_called_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run"):
        read_lines(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="nothing to tell yet"):
        read_lines(tmp_path)
