"""Public data sets become problem files: each format, what is left out, and which rows are no problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from protocol.environments.problem_files import FileProblem, ProblemFile
from protocol.errors import MalformedFile, UsageError
from trainer.commands import app
from trainer.data_columns import Columns
from trainer.data_import import ImportReport, import_problems

GSM8K = {"question": "How many are 40 + 2?", "answer": "40 + 2 = <<40+2=42>>42\n#### 42"}
MATH = {"problem": "Halve one.", "solution": r"It is $\boxed{\frac{1}{2}}$.", "level": "Level 1"}
PRIME = {
    "problem_id": "sum",
    "task_type": "code",
    "prompt": "Add.",
    "verification_info": '{"fn_name": "add",  "inputs": [[1, 2]]}',
    "solve_rate_a": 0.5,
    "source": "elsewhere",
}
WORDS = "a farmer has seven fields and sows barley on three of them in spring"


def json_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def imported(tmp_path: Path, rows: list[Any], columns: Columns | None = None) -> list[FileProblem]:
    out = tmp_path / "out.jsonl"
    import_problems([json_lines(tmp_path / "source.jsonl", rows)], out, columns or Columns())
    return list(ProblemFile(out))


@pytest.mark.parametrize(
    ("row", "prompt", "truth"), [(GSM8K, GSM8K["question"], "42"), (MATH, MATH["problem"], r"\frac{1}{2}")]
)
def test_answers_are_found(tmp_path: Path, row: dict[str, str], prompt: str, truth: str) -> None:
    (problem,) = imported(tmp_path, [row])
    assert problem == FileProblem("source_0", "math", prompt, {"ground_truth": truth}, {})


def test_problems_in_our_columns_are_taken_over(tmp_path: Path) -> None:
    source = json_lines(tmp_path / "source.jsonl", [PRIME])
    report = import_problems([source], tmp_path / "out.jsonl", Columns())
    assert report.dataset_hash == ProblemFile(source).dataset_hash
    assert list(ProblemFile(tmp_path / "out.jsonl")) == list(ProblemFile(source))


def test_any_two_columns_can_be_named(tmp_path: Path) -> None:
    (problem,) = imported(tmp_path, [{"q": "1 + 1?", "a": 2, "problem_id": 7}], Columns("q", "a", "sums"))
    assert problem == FileProblem("7", "sums", "1 + 1?", {"ground_truth": "2"}, {})


def test_one_column_alone_isnt_enough() -> None:
    with pytest.raises(UsageError, match="answer-column"):
        Columns(prompt="q")


@pytest.mark.parametrize(
    "bad",
    [
        {"question": "No mark?", "answer": "42"},
        {"question": "Nothing behind it?", "answer": "#### "},
        {"problem": "No box.", "solution": "42"},
        {"problem": "An open box.", "solution": r"\boxed{42"},
        {"question": "No answer?"},
        {"question": None, "answer": "#### 1"},
        {"question": "", "answer": "#### 1"},
        {**PRIME, "problem_id": "bad", "prompt": "Other.", "verification_info": "[]"},
        {**PRIME, "problem_id": "bad", "prompt": "Other.", "verification_info": "no JSON"},
        {**PRIME, "problem_id": "bad", "prompt": "Other.", "solve_rate_a": 1.5},
        {**PRIME, "prompt": "The id is taken."},
        {**PRIME, "problem_id": "x" * 257, "prompt": "The id is too long."},
        {**PRIME, "problem_id": "bad", "prompt": "half a pair \ud800"},
        ["no object"],
    ],
)
def test_a_bad_row_is_named_and_leaves_no_file(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(MalformedFile, match="row 1 of .*source.jsonl"):
        imported(tmp_path, [PRIME, bad])
    assert not (tmp_path / "out.jsonl").exists()


def test_the_hash_is_the_same_in_either_format(tmp_path: Path) -> None:
    rows = [PRIME, {**PRIME, "problem_id": "other", "prompt": "Subtract.", "solve_rate_b": 0.25}]
    lines, table = json_lines(tmp_path / "source.jsonl", rows), tmp_path / "source.parquet"
    pq.write_table(pa.Table.from_pylist([{"solve_rate_b": None, **row} for row in rows]), table)
    outs = [tmp_path / name for name in ("1.jsonl", "2.parquet", "3.jsonl", "4.parquet")]
    reports = [
        import_problems([source], out, Columns())
        for source, out in zip([lines, lines, table, table], outs, strict=True)
    ]
    assert all(report == reports[0] for report in reports)
    assert {ProblemFile(out).dataset_hash for out in outs} == {reports[0].dataset_hash}
    assert [one.solve_rates for one in ProblemFile(outs[1])] == [one.solve_rates for one in ProblemFile(lines)]
    assert import_problems([lines], outs[0], Columns()) == reports[0]  # it may be written anew


def test_duplicates_are_dropped_or_kept(tmp_path: Path) -> None:
    first = json_lines(tmp_path / "a.jsonl", [GSM8K, {**GSM8K, "question": "how  many are 40 + 2?"}])
    second = json_lines(tmp_path / "b.jsonl", [GSM8K, MATH])
    out = tmp_path / "out.jsonl"
    report = import_problems([first, second], out, Columns())
    assert (report.num_problems, report.num_duplicates) == (2, 2)
    assert [one.problem_id for one in ProblemFile(out)] == ["a_0", "b_1"]
    kept = import_problems([first, second], out, Columns(), keep_duplicates=True)
    assert (kept.num_problems, kept.num_duplicates, len(ProblemFile(out))) == (4, 0, 4)


def test_what_a_test_set_has_is_dropped(tmp_path: Path) -> None:
    long = {**MATH, "problem": f"Once {WORDS}."}
    source = json_lines(tmp_path / "source.jsonl", [GSM8K, MATH, long])
    words = json_lines(tmp_path / "words.jsonl", [{"question": f"So, {WORDS}: how many?"}])
    prompts = json_lines(tmp_path / "prompts.jsonl", [{"problem": "HALVE one."}, {"problem": long["problem"]}])
    out = tmp_path / "out.parquet"
    report = import_problems([source], out, Columns(), [words])
    assert (report.num_problems, report.num_same_prompt, report.num_same_words) == (2, 0, 1)
    report = import_problems([source], out, Columns(), [words, prompts])
    assert (report.num_problems, report.num_same_prompt, report.num_same_words) == (1, 2, 0)
    assert [one.prompt for one in ProblemFile(out)] == [GSM8K["question"]]
    other = json_lines(tmp_path / "other.jsonl", [{"question": "What is another question?"}])
    assert import_problems([source], out, Columns(), [other]).num_problems == 3


def test_nothing_left_and_other_endings_are_refused(tmp_path: Path) -> None:
    source = json_lines(tmp_path / "source.jsonl", [GSM8K])
    with pytest.raises(UsageError, match="1 were left out"):
        import_problems([source], tmp_path / "out.jsonl", Columns(), [source])
    with pytest.raises(UsageError, match="out.csv"):
        import_problems([source], tmp_path / "out.csv", Columns())
    assert list(tmp_path.iterdir()) == [source]


def test_the_command_prints_for_people_and_for_scripts(tmp_path: Path) -> None:
    source, out = json_lines(tmp_path / "source.jsonl", [GSM8K, GSM8K]), tmp_path / "out.jsonl"
    call = ["data", "import", str(source), "--out", str(out)]
    text = CliRunner().invoke(app, call).output
    assert ProblemFile(out).dataset_hash in text and "1 duplicates" in text
    report = ImportReport.model_validate_json(CliRunner().invoke(app, [*call, "--json"]).stdout)
    assert report == import_problems([source], out, Columns())
