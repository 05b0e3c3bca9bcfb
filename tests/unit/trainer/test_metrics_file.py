"""Lines that are whole: a torn one is taken away, one that can't be read is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import UsageError
from trainer.metrics_file import MetricsFile


def test_what_is_appended_is_read_and_no_file_has_no_lines(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    assert metrics.lines() == []
    metrics.append({"step": 1, "entropy": 0.5})
    metrics.append({"step": 2, "entropy": None})
    assert metrics.lines() == [{"step": 1, "entropy": 0.5}, {"step": 2, "entropy": None}]


def test_what_isnt_finite_is_null_so_that_each_line_is_json(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics.append({"step": 1, "kl_to_worker": float("inf"), "grad_norm": float("nan"), "parts": {"a": -float("inf")}})
    assert metrics.path.read_text() == '{"step": 1, "kl_to_worker": null, "grad_norm": null, "parts": {"a": null}}\n'
    assert metrics.lines() == [{"step": 1, "kl_to_worker": None, "grad_norm": None, "parts": {"a": None}}]


@pytest.mark.parametrize("torn", ['{"step": 2, "entr', '{"step": 2}', "{"])
def test_a_line_that_a_kill_cut_short_is_no_line_and_spoils_none(tmp_path: Path, torn: str) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    for head in ("", '{"step": 1}\n'):
        metrics.path.write_text(head + torn)
        assert len(metrics.lines()) == head.count("\n")
        metrics.append({"step": 3})
        assert [line["step"] for line in metrics.lines()] == [1] * head.count("\n") + [3]


@pytest.mark.parametrize("line", ["{", "[]", '{"step": "1"}', "{}"])
def test_a_line_that_isnt_one_is_named(tmp_path: Path, line: str) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics.path.write_text(f'{{"step": 1}}\n{line}\n')
    with pytest.raises(UsageError, match="can't be read") as refused:
        metrics.lines()
    assert f"{metrics.path}, line 2" in refused.value.why


def test_bytes_that_are_no_text_are_named_as_well(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics.path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(UsageError, match="can't be read"):
        metrics.lines()
