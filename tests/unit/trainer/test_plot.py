"""Curves out of metrics files: what can be drawn is, what can't is said."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import UsageError
from trainer.plot import HISTOGRAM, draw, read_curves


def write_run(folder: Path, *lines: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize(("name", "start"), [("c.png", b"\x89PNG\r\n"), ("c.html", b"<!doctype html>")])
def test_runs_are_drawn_as_the_ending_says(tmp_path: Path, name: str, start: bytes) -> None:
    first = write_run(
        tmp_path / "a<b>",
        {"step": 1, "mean_task_reward": 0.4, "policy_lag_counts": {"0": 3, "2": 1}},
        {"step": 2, "mean_task_reward": 0.6, "policy_lag_counts": {"1": 4}},
        {"step": 1, "held_back_average": 0.25},
    )
    second = write_run(tmp_path / "second", {"step": 1, "mean_task_reward": 0.3, "kl_to_reference": None})
    draw([read_curves(first), read_curves(second)], tmp_path / name)
    page = (tmp_path / name).read_bytes()
    assert page.startswith(start)
    if name.endswith("html"):
        text = page.decode()
        assert "<svg" in text and "0.6" in text
        assert f"<!-- {HISTOGRAM} -->" in text and "<!-- held-back avg@k and pass@k -->" in text
        assert "<!-- MFU -->" not in text  # no run says it
        assert "a<b>" not in text and "a&lt;b&gt;" in text
        assert not re.search(r'(href|src)="https?:', text)


def test_a_testnets_folder_and_a_file_are_found(tmp_path: Path) -> None:
    run = write_run(tmp_path / "0001" / "data" / "trainer", {"step": 3, "entropy": 0.5})
    assert read_curves(tmp_path / "0001").column("entropy") == ([3], [0.5])
    assert read_curves(run / "metrics.jsonl").column("entropy") == ([3], [0.5])


@pytest.mark.parametrize("text", ["", "{", "[]\n", '{"step": "1"}\n'])
def test_a_file_without_metrics_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(text)
    with pytest.raises(UsageError, match="metrics file can't be read|nothing to tell yet") as refused:
        read_curves(file)
    assert str(file) in refused.value.why


def test_no_run_and_no_such_format_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="that is no run"):
        read_curves(tmp_path)
    run = read_curves(write_run(tmp_path / "r", {"step": 1, "entropy": 0.1}))
    with pytest.raises(UsageError, match="can't be written like that"):
        draw([run], tmp_path / "curves.pdf")
    assert not (tmp_path / "curves.pdf").exists()


def test_shares_of_lags_are_over_all_steps(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", {"step": 1, "policy_lag_counts": {"0": 3, "2": 1}}, {"step": 2, "entropy": 0.1})
    assert read_curves(run).lag_shares == {0: 0.75, 2: 0.25}
    assert read_curves(write_run(tmp_path / "other", {"step": 1})).lag_shares == {}
