"""What is said of a problem file, and which of its problems a test set has too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from protocol.environments.problem_files import ProblemFile
from protocol.errors import ConfigError, MalformedFile, UsageError
from trainer import data_overlap
from trainer.commands import app
from trainer.data_overlap import Questions
from trainer.data_prompts import normalised, prompt_key, word_grams
from trainer.data_stats import DataStats, data_stats

WORDS = "a farmer has seven fields and sows barley on three of them in spring"


def row(number: int, prompt: str, **more: Any) -> dict[str, Any]:
    info = json.dumps({"ground_truth": "1"})
    return {"problem_id": f"p{number}", "task_type": "math", "prompt": prompt, "verification_info": info, **more}


def json_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


ROWS = [
    row(0, "What is 1 + 1?", solve_rate_a=0.0),
    row(1, "what  is\n1 + 1? ", solve_rate_a=1.0),
    row(2, "What is 1 - 1?", solve_rate_a=None),
    {**row(3, "Print 1."), "task_type": "code", "solve_rate_a": 0.5},
]


def test_a_file_is_counted(tmp_path: Path) -> None:
    found = data_stats(json_lines(tmp_path / "train.jsonl", ROWS))
    assert (found.num_problems, found.task_types, found.num_duplicates) == (4, {"code": 1, "math": 3}, 1)
    assert found.prompt_characters is not None
    assert (found.prompt_characters.least, found.prompt_characters.greatest) == (8, 16)
    rates = found.solve_rates["solve_rate_a"]
    assert (rates.count, rates.least, rates.p50, rates.greatest) == (3, 0, 0.5, 1)
    assert found.overlaps == ()


def test_a_file_without_repetitions_has_no_duplicates(tmp_path: Path) -> None:
    assert data_stats(json_lines(tmp_path / "train.jsonl", [ROWS[0], *ROWS[2:]])).num_duplicates == 0


def test_an_empty_file_has_nothing(tmp_path: Path) -> None:
    found = data_stats(json_lines(tmp_path / "train.jsonl", []), [json_lines(tmp_path / "test.jsonl", [])])
    assert (found.num_problems, found.prompt_characters, found.num_duplicates) == (0, None, 0)
    assert found.overlaps[0].share == 0


def test_the_hash_is_that_of_the_rules_in_either_format(tmp_path: Path) -> None:
    lines = json_lines(tmp_path / "train.jsonl", ROWS)
    table = parquet(tmp_path / "train.parquet", ROWS)
    assert data_stats(lines) == data_stats(table)
    assert data_stats(lines).dataset_hash == ProblemFile(lines).dataset_hash
    assert data_stats(json_lines(tmp_path / "fewer.jsonl", ROWS[1:])).dataset_hash != ProblemFile(lines).dataset_hash


@pytest.mark.parametrize("column", ["prompt", "question", "problem"])
def test_overlaps_are_found_by_prompt_and_by_words(tmp_path: Path, column: str) -> None:
    train = json_lines(tmp_path / "train.jsonl", [*ROWS, row(4, f"Once {WORDS.upper()}, and then?")])
    test = [{column: "WHAT IS 1 + 1?"}, {column: f"So, {WORDS}. How many are left?"}]
    for against in (json_lines(tmp_path / "test.jsonl", test), parquet(tmp_path / "test.parquet", test)):
        (found,) = data_stats(train, [against]).overlaps
        assert (found.same_prompt, found.same_words, found.share) == (2, 1, 3 / 5)


def test_no_overlap_isnt_found(tmp_path: Path) -> None:
    twelve = " ".join(WORDS.split()[:12])
    train = json_lines(tmp_path / "train.jsonl", [*ROWS, row(4, f"Once {twelve}")])
    test = json_lines(tmp_path / "test.jsonl", [{"prompt": "What is 1 + 2?"}, {"prompt": f"So {WORDS}"}])
    (found,) = data_stats(train, [test]).overlaps
    assert (found.same_prompt, found.same_words, found.share) == (0, 0, 0)


def test_each_test_set_is_counted_by_itself(tmp_path: Path) -> None:
    train = json_lines(tmp_path / "train.jsonl", ROWS)
    one = json_lines(tmp_path / "one.jsonl", [{"prompt": "Print 1."}])
    other = json_lines(tmp_path / "other.jsonl", [{"prompt": "Print 2."}])
    assert [found.same_prompt for found in data_stats(train, [one, other]).overlaps] == [1, 0]


@pytest.mark.parametrize("bad", [{"text": "no question"}, {"prompt": ""}, {"prompt": ["chat"]}, ["no object"]])
def test_a_bad_row_of_a_test_set_is_named(tmp_path: Path, bad: Any) -> None:
    train = json_lines(tmp_path / "train.jsonl", ROWS)
    test = json_lines(tmp_path / "test.jsonl", [{"prompt": "fine"}, bad])
    with pytest.raises(MalformedFile, match="row 1 of .*test.jsonl"):
        data_stats(train, [test])


def test_a_bad_row_of_the_problem_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MalformedFile, match="row 4 of .*train.jsonl"):
        data_stats(json_lines(tmp_path / "train.jsonl", [*ROWS, {"prompt": "no id"}]))


def test_files_that_cant_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none.jsonl"):
        data_stats(tmp_path / "none.jsonl")
    train = json_lines(tmp_path / "train.jsonl", ROWS)
    for name in ("none.jsonl", "none.parquet"):
        with pytest.raises(UsageError, match=name):
            data_stats(train, [tmp_path / name])
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(MalformedFile, match="bad.parquet"):
        data_stats(train, [tmp_path / "bad.parquet"])


def test_a_test_set_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = Questions("test.jsonl")
    questions.add(WORDS)
    monkeypatch.setattr(data_overlap, "MAX_GRAMS", 2)
    with pytest.raises(UsageError, match="test.jsonl"):
        questions.add(f"{WORDS} and two in autumn")


def test_words_count_and_layout_doesnt() -> None:
    assert normalised(" A\tb ") == "a b" and prompt_key("A b") == prompt_key("a\nB")
    assert prompt_key("ab") != prompt_key("a b")
    words = WORDS.split()
    assert len(list(word_grams(WORDS))) == len(words) - 12
    assert list(word_grams(WORDS)) == list(word_grams(", ".join(words).title()))
    assert list(word_grams(WORDS)) != list(word_grams(WORDS.replace("barley", "wheat")))


def test_the_command_prints_for_people_and_for_scripts(tmp_path: Path) -> None:
    train = json_lines(tmp_path / "train.jsonl", ROWS)
    test = json_lines(tmp_path / "test.jsonl", [{"question": "Print 1."}])
    call = ["data", "stats", str(train), "--against", str(test)]
    text = CliRunner().invoke(app, call).output
    assert ProblemFile(train).dataset_hash in text and "1 problems (25.00%)" in text
    document = CliRunner().invoke(app, [*call, "--json"]).stdout
    assert DataStats.model_validate_json(document) == data_stats(train, [test])
