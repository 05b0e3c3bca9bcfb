"""Problem files: both formats the same, bad rows named, the hash over content, memory flat."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from protocol.environments.from_file import FileEnvironment, ProblemFileConfig, is_held_back
from protocol.environments.problem_files import DATASETS_VARIABLE, FileProblem, ProblemFile, open_problem_file
from protocol.errors import ConfigError, MalformedFile, UsageError
from protocol.tokenizer import Tokenizer


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "problem_id": f"sum_{number}",
        "task_type": "code" if number % 2 else "math",
        "prompt": f"What is {number} + 1? é",
        "verification_info": json.dumps({"answer": number + 1, "big": 10**30, "tiny": 1e-9}),
        "solve_rate_small": None if number == 3 else 0.25,
        **changes,
    }


Writer = Callable[[list[dict[str, Any]]], Path]


@pytest.fixture
def lines(tmp_path: Path) -> Writer:
    def write(rows: list[dict[str, Any]]) -> Path:
        path = tmp_path / "problems.jsonl"
        path.write_text("\n".join(json.dumps(one) for one in rows) + "\n")
        return path

    return write


def test_a_row_is_had_by_its_number(lines: Writer) -> None:
    file = ProblemFile(lines([row(number) for number in range(40)]))
    assert len(file) == 40
    info = {"answer": 38, "big": 10**30, "tiny": 1e-9}
    assert file[37] == FileProblem("sum_37", "code", "What is 37 + 1? é", info, {"solve_rate_small": 0.25})
    assert file[3].solve_rates == {}
    for index in (-1, 40):
        with pytest.raises(UsageError, match="no such problem"):
            file[index]


def test_parquet_and_lines_with_the_same_problems_have_one_hash(lines: Writer, tmp_path: Path) -> None:
    rows = [row(number) for number in range(40)]
    pq.write_table(pa.Table.from_pylist([{**one, "note": 1} for one in rows]), tmp_path / "p.parquet", row_group_size=7)
    written = ProblemFile(tmp_path / "p.parquet")
    read = ProblemFile(lines(rows))
    assert list(written) == list(read)
    assert written.dataset_hash == read.dataset_hash


def test_whatever_decides_a_problem_is_hashed_and_a_solve_rate_isnt(lines: Writer) -> None:
    plain = ProblemFile(lines([row(1), row(2)])).dataset_hash
    changed: list[dict[str, Any]] = [
        {"prompt": "?"},
        {"problem_id": "x"},
        {"task_type": "x"},
        {"verification_info": "{}"},
    ]
    hashes = {ProblemFile(lines([row(1, **change), row(2)])).dataset_hash for change in changed}
    hashes.add(ProblemFile(lines([row(2), row(1)])).dataset_hash)
    assert len(hashes | {plain}) == 6
    assert ProblemFile(lines([row(1, solve_rate_small=1.0), row(2)])).dataset_hash == plain


def test_an_object_is_as_good_as_its_text(lines: Writer) -> None:
    assert ProblemFile(lines([row(1, verification_info={"b": 1, "a": "é"})]))[0].verification_info == {"b": 1, "a": "é"}


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": ""},
        {"prompt": None},
        {"prompt": "half a pair \ud800"},
        {"problem_id": "x" * 257},
        {"problem_id": True},
        {"task_type": 7},
        {"verification_info": "[]"},
        {"verification_info": "{"},
        {"verification_info": None},
        {"verification_info": "{" * 5000},
        {"solve_rate_small": 1.5},
        {"solve_rate_small": "0.5"},
    ],
)
def test_a_bad_row_is_named(lines: Writer, change: dict[str, Any]) -> None:
    with pytest.raises(MalformedFile, match="row 1 "):
        ProblemFile(lines([row(0), row(1, **change)]))


def test_an_id_is_there_once(lines: Writer) -> None:
    with pytest.raises(MalformedFile, match="id that is taken"):
        ProblemFile(lines([row(0), row(0, prompt="another")]))


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[1]", b"nonsense", b"[" * 100_000])
def test_what_is_no_json_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.jsonl").write_bytes(content)
    with pytest.raises(MalformedFile, match="row 0 "):
        ProblemFile(tmp_path / "bad.jsonl")
    (tmp_path / "bad.parquet").write_bytes(content)
    with pytest.raises(MalformedFile, match="no parquet file"):
        ProblemFile(tmp_path / "bad.parquet")


def test_a_dataset_is_found_by_name_and_hash(lines: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lines([row(1)])
    monkeypatch.setenv(DATASETS_VARIABLE, str(tmp_path))
    right = ProblemFile(path).dataset_hash
    assert len(open_problem_file("problems.jsonl", right)) == 1
    with pytest.raises(ConfigError, match="isn't the one in the rules"):
        open_problem_file("problems.jsonl", "0x" + "00" * 32)
    for name in ("missing.jsonl", "../problems.jsonl", str(path)):
        with pytest.raises(ConfigError, match="there is no dataset"):
            open_problem_file(name, right)


class Told(FileEnvironment):
    """Passes whoever says the answer."""

    def identity(self) -> dict[str, Any]:
        return {"package": "tests"}

    def _score(self, problem: Any, answer: str | None) -> float:
        return float(answer == str(problem.entry["info"]["answer"]))


@pytest.fixture
def told(lines: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer) -> Callable[..., Told]:
    path = lines([row(number, prompt=f"What is {number % 150} + 1?") for number in range(200)])
    monkeypatch.setenv(DATASETS_VARIABLE, str(tmp_path))
    pinned = {"dataset": "problems.jsonl", "dataset_hash": ProblemFile(path).dataset_hash}
    return lambda **changes: Told(ProblemFileConfig.model_validate({**pinned, **changes}), tokenizer)


def test_no_question_is_on_both_sides(told: Callable[..., Told]) -> None:
    environment = told(held_back_per_mille=200)
    asked = {environment.problem(index).question for index in range(environment.num_problems)}
    held_back = environment.held_back(20)
    assert len({problem.question for problem in held_back}) == 20
    assert not asked & {problem.question for problem in held_back}
    assert all(is_held_back(problem.question, 200) for problem in held_back)
    with pytest.raises(ConfigError, match="hasn't got so many"):
        environment.held_back(100)


def test_only_the_asked_task_types_are_there(told: Callable[..., Told]) -> None:
    code, everything = told(task_types=["code"], held_back_per_mille=0), told(held_back_per_mille=0)
    assert (code.num_problems, everything.num_problems) == (100, 200)
    assert {code.problem(index).task_type for index in range(100)} == {"code"}
    assert code.environment_hash != everything.environment_hash
    with pytest.raises(ConfigError, match="no training problem"):
        told(task_types=["poetry"])


def test_an_answer_is_judged_by_its_own_row(told: Callable[..., Told]) -> None:
    environment = told(held_back_per_mille=0)
    assert environment.score(environment.problem(7), " 8 ") == 1
    assert environment.score(environment.problem(7), "9") == 0
    assert environment.difficulty(environment.problem(7)) == {"solve_rate_small": 0.25}
