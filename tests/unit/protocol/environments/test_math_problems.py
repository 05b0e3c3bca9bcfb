"""The math environment: problems of a file, the answer in the last box after thinking, the hash over what judges."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.environments import math_problems
from protocol.environments.base import Judgement
from protocol.environments.math_problems import MathProblems
from protocol.environments.problem_files import ProblemFile
from protocol.environments.registry import environment_names, load_environment
from protocol.errors import ConfigError
from protocol.tokenizer import Tokenizer

MakeMath = Callable[..., MathProblems]
ROWS = [("1 + 1 = ?", "2"), ("Half of one?", "\\boxed{\\frac{1}{2}}"), ("Two and two?", 4), ("Roots of x^2=4?", "2,-2")]


@pytest.fixture
def make_math(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeMath:
    """A file of these questions and ground truths, as an environment."""
    monkeypatch.setenv("PROOFPOOL_DATASETS", str(tmp_path))

    def make(rows: Any = tuple(ROWS), **changes: Any) -> MathProblems:
        lines = [
            {
                "problem_id": f"q{number}",
                "task_type": "verifiable_math",
                "prompt": question,
                "verification_info": {"ground_truth": gold},
            }
            for number, (question, gold) in enumerate(rows)
        ]
        path = tmp_path / "problems.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        config = {"dataset": path.name, "dataset_hash": ProblemFile(path).dataset_hash, "held_back_per_mille": 0}
        environment = load_environment("math", {**config, **changes}, tokenizer)
        assert isinstance(environment, MathProblems)
        return environment

    return make


def test_the_last_box_after_thinking_is_judged(make_math: MakeMath) -> None:
    environment = make_math()
    assert "math" in environment_names()
    half = environment.problem(1)
    for text, score in {
        "<think>\\boxed{3}</think>It is \\boxed{0.5}.": 1.0,
        "\\boxed{3}, no, \\boxed{\\frac{2}{4}}": 1.0,
        "\\boxed{0.5}, no, \\boxed{3}": 0.0,
        "<think>\\boxed{0.5}</think>I forgot.": 0.0,
        "<think>\\boxed{0.5}": 0.0,
        "0.5": 0.0,
        "": 0.0,
    }.items():
        assert environment.judge_text(half, text) == Judgement(score), text


def test_ground_truths_are_texts_or_numbers(make_math: MakeMath) -> None:
    environment = make_math()
    assert environment.score(environment.problem(2), "\\boxed{2+2}") == 1.0
    assert environment.score(environment.problem(3), "\\boxed{\\pm2}") == 1.0
    assert environment.score(environment.problem(3), "\\boxed{2}") == 0.0


def test_a_marker_takes_the_place_of_the_box(make_math: MakeMath) -> None:
    environment = make_math(answer_marker="####")
    assert environment.score(environment.problem(0), "so #### 2.0") == 1.0
    assert environment.score(environment.problem(0), "\\boxed{2}") == 0.0


@pytest.mark.parametrize("gold", [None, "", " ", True, ["2"], "9" * 3_000])
def test_a_problem_without_a_proper_answer_is_named(make_math: MakeMath, gold: Any) -> None:
    with pytest.raises(ConfigError, match="dataset") as error:
        make_math(rows=[("fine?", "1"), ("what?", gold)])
    assert "q1" in error.value.why


@pytest.mark.parametrize(("changes", "why"), [({"cpu_seconds": 0}, "cpu_seconds"), ({"no_such": 1}, "no_such")])
def test_a_wrong_configuration_names_what_is_wrong(make_math: MakeMath, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match="configuration is wrong") as error:
        make_math(**changes)
    assert why in error.value.why


def test_what_judges_is_in_the_hash(make_math: MakeMath, monkeypatch: pytest.MonkeyPatch) -> None:
    here = make_math()
    assert here.identity()["requirements"].keys() >= {"math-verify", "sympy", "latex2sympy2_extended"}
    hashes = {here.environment_hash, make_math(cpu_seconds=2).environment_hash}
    monkeypatch.setattr(math_problems, "JUDGING_VERSION", 2)
    assert len(hashes | {make_math().environment_hash}) == 3
