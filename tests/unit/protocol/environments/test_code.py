"""Programs as answers: right, wrong, slow, crashing and cheating ones; where the program is; what tests look like."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.environments import code_tests
from protocol.environments.base import Judgement, Problem
from protocol.environments.code import Code, CodeConfig, _judgement
from protocol.environments.code_answer import MAX_CHARACTERS, program_in
from protocol.environments.code_tests import same_text, same_value
from protocol.environments.problem_files import DATASETS_VARIABLE, ProblemFile
from protocol.environments.registry import environment_of, load_environment
from protocol.errors import ConfigError
from protocol.rules import EnvironmentRules
from protocol.sandbox.verdict import Verdict
from protocol.tokenizer import Tokenizer
from tests.sandboxes import require_sandbox
from tests.worlds.code import KINDS, World, answers


@pytest.fixture(scope="module")
def code_world() -> World:
    require_sandbox()
    return World()


@pytest.mark.parametrize("kind", KINDS)
def test_answers_of_each_kind_are_judged_right(code_world: World, kind: str) -> None:
    assert list(code_world.misjudged(answers([kind])[5:30:22])) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_all_answers_are_judged_right_under_load(code_world: World, kind: str) -> None:
    """A hundred problems and more; what is slow takes its time, so that every twelfth must do."""
    some = answers([kind])[:: 12 if kind == "slow" else 1]
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        assert len(answers([kind])) >= 100
        assert list(code_world.misjudged(some)) == []
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_other_processes_and_surroundings_find_the_same() -> None:
    require_sandbox()
    root = Path(__file__).resolve().parents[4]
    common = {"PATH": os.environ["PATH"], "PYTHONPATH": str(root)}
    surroundings = [
        (root, {**common, "PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C"}),
        (
            Path("/"),
            {**common, "PYTHONHASHSEED": "2", "TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "LANG": "tr_TR.UTF-8"},
        ),
    ]
    found = [
        subprocess.run(
            [sys.executable, "-m", "tests.worlds.code", "120"],
            cwd=folder,
            env=environment,
            capture_output=True,
            check=True,
        ).stdout
        for folder, environment in surroundings
    ]
    assert len(json.loads(found[0])) == 120
    assert found[0] == found[1]


def test_the_share_of_tests_is_partial_credit() -> None:
    require_sandbox()
    world = World(reward="score")
    problem = world.problems["palindrome_0_stdin"]
    always = "```python\nprint(1)\n```"
    outputs = problem.entry["info"]["outputs"]
    assert world.environment.judge_text(problem, always) == Judgement(outputs.count("1") / len(outputs))
    first = World(reward="score", num_tests=1)
    assert first.environment.judge_text(problem, always).score in (0.0, 1.0)
    assert first.environment.environment_hash != world.environment.environment_hash


def test_no_program_is_no_answer(code_world: World) -> None:
    problem = code_world.problems["bits_0_stdin"]
    for text in ("", "print(1)", "```python\nprint(1)", "<think>```python\nprint(1)\n```"):
        assert code_world.environment.judge_text(problem, text) == Judgement(0.0)


def test_what_is_expected_never_goes_into_the_sandbox(code_world: World) -> None:
    for problem in list(code_world.problems.values())[:20]:
        for test in code_tests.tests_of(problem.entry["info"]):
            job = test.job("pass")
            told = (job.stdin.decode(), job.call and job.call[1])
            assert job.code == "pass" and told == (test.stdin, test.call and test.call[1])


def test_a_program_that_does_not_do_the_same_twice_slashes_nobody(code_world: World) -> None:
    """By its claim a worker says that it passed; the second look finds that it may."""
    environment = code_world.environment
    problem = code_world.problems["happy_0_call"]
    right = next(answer for answer in answers(["right"]) if answer.problem_id == problem.problem_id)
    passed = environment.judge_text(problem, right.text)
    found = iter([passed, passed])
    again = _with(environment, found).judge_again(problem, [], Judgement(0.0))
    assert (again.certain, again.allows(1.0), again.allows(0.0), again.allows(0.5)) == (False, True, True, False)
    steady = _with(environment, iter([passed, passed])).judge_again(problem, [], passed)
    assert steady == passed and steady.certain


def _with(environment: Code, found: Any) -> Code:
    class Told(Code):
        def judge(self, problem: Problem, completion: Any) -> Judgement:
            judgement: Judgement = next(found)
            return judgement

    told = object.__new__(Told)
    told.__dict__.update(environment.__dict__)
    return told


PASS, FAIL = Verdict(True, True), Verdict(False, True)
SLOW_PASS, SLOW_FAIL = Verdict(True, False), Verdict(False, False)


@pytest.mark.parametrize(
    ("verdicts", "judgement"),
    [
        ([PASS, PASS], Judgement(1.0)),
        ([PASS, FAIL], Judgement(0.5)),
        ([PASS, SLOW_PASS], Judgement(1.0, 0.5, certain=False)),
        ([PASS, SLOW_FAIL], Judgement(0.5, 1.0, certain=False)),
        ([SLOW_PASS, SLOW_FAIL, FAIL, PASS], Judgement(0.5, 0.75, certain=False)),
    ],
)
def test_the_other_score_is_that_of_another_machine(verdicts: list[Verdict], judgement: Judgement) -> None:
    assert _judgement(verdicts) == judgement


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\nx\n```", "x"),
        ("```\nx\n```", "x"),
        ("```py\nx\n```\n```cpp\ny\n```", "x"),
        ("```python\nx\n```\n```python\ny", "x"),
        ("1. So:\n   ```python3\n   if x:\n       y\n   ```", "if x:\n    y"),
        ("```python\nx = '''\n```python\n'''\n```", "x = '''\n```python\n'''"),
        ("```cpp\nx\n```", None),
        ("``x``", None),
        ("", None),
        (f"```\n{'x' * (MAX_CHARACTERS + 1)}\n```", None),
    ],
)
def test_the_last_closed_block_is_the_program(text: str, program: str | None) -> None:
    assert program_in(text) == program


@pytest.mark.parametrize("text", ["```" * 200_000, "```a\n" * 200_000, "`" * 10**6, " " * 10**6, "```" + "a" * 10**6])
def test_a_hostile_text_is_read_in_time(text: str) -> None:
    assert program_in(text) is None


STDIN, CALL = {"inputs": ["1"], "outputs": ["2"]}, {"fn_name": "f", "inputs": [[1]], "outputs": [2]}


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (STDIN, "2"),
        ({**STDIN, "fn_name": None}, "2"),
        ({"inputs": [["1", "2"]], "outputs": [["3", "4"]]}, "3\n4"),
        (CALL, 2),
        ({"fn_name": "f", "inputs": ["1\n[2]"], "outputs": ["3"]}, 3),
        ({"ground_truth": json.dumps(STDIN)}, "2"),
        ({"ground_truth": [{"type": "stdin_stdout", "input": "1", "output": "2"}]}, "2"),
        (
            {
                "test_cases": [{"type": "function_call", "fn_name": "f", "input": [1], "output": 2}],
                "language": "python",
            },
            2,
        ),
    ],
)
def test_the_forms_of_tests(info: dict[str, Any], expected: Any) -> None:
    (test,) = code_tests.tests_of(info)
    assert test.expected == expected
    assert (test.call is None) == isinstance(expected, str)


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"inputs": [], "outputs": []},
        {"inputs": ["1"], "outputs": []},
        {"inputs": "1", "outputs": "2"},
        {"inputs": [1], "outputs": ["2"]},
        {"fn_name": 7, "inputs": [[1]], "outputs": [2]},
        {"fn_name": "f", "inputs": [1], "outputs": [2]},
        {"test_cases": [{"type": "function_call", "input": [1], "output": 2}]},
        {"test_cases": [{"input": "1"}]},
        {"ground_truth": "{"},
        {**STDIN, "language": "cpp"},
        {"inputs": ["1"] * 1001, "outputs": ["1"] * 1001},
    ],
)
def test_what_is_no_set_of_tests_is_refused(info: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        code_tests.tests_of(info)


@pytest.mark.parametrize(
    ("printed", "expected", "is_same"),
    [
        ("1 2\n3\n\n", "1  2 \n3", True),
        ("1 2 3", "1 2\n3", False),
        ("3.00000001", "3.0", True),
        ("3", "3.0", True),
        ("3.1", "3", False),
        ("3.001", "3.0", False),
        ("1e400", "1.5", False),
        ("nan", "1.5", False),
        ("Yes", "YES", False),
        ("", "", True),
        ("0", "", False),
    ],
)
def test_printed_text_is_compared_by_words(printed: str, expected: str, is_same: bool) -> None:
    assert same_text(printed, expected) is is_same


@pytest.mark.parametrize(
    ("returned", "expected", "is_same"),
    [
        ([1, [2, "x"]], [1, [2, "x"]], True),
        (1, True, False),
        (True, 1, False),
        (1, 1.0, True),
        (0.30000000000000004, 0.3, True),
        (0.31, 0.3, False),
        (10**400, 0.5, False),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ([1, 2], [2, 1], False),
        (None, 0, False),
        ("1", 1, False),
    ],
)
def test_returned_values_are_compared_as_json(returned: Any, expected: Any, is_same: bool) -> None:
    assert same_value(returned, expected) is is_same


def test_the_registry_knows_it_and_refuses_rows_without_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer
) -> None:
    def written(info: dict[str, Any]) -> dict[str, Any]:
        row = {"problem_id": "p", "task_type": "code", "prompt": "?", "verification_info": info}
        (tmp_path / "p.jsonl").write_text(json.dumps(row))
        return {
            "dataset": "p.jsonl",
            "dataset_hash": ProblemFile(tmp_path / "p.jsonl").dataset_hash,
            "held_back_per_mille": 0,
        }

    monkeypatch.setenv(DATASETS_VARIABLE, str(tmp_path))
    environment = load_environment("code", written(STDIN), tokenizer)
    assert environment.identity()["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    with pytest.raises(ConfigError, match="no tests that can be run"):
        load_environment("code", written({"answer": 1}), tokenizer)
    with pytest.raises(ConfigError, match="configuration is wrong"):
        load_environment("code", {**written(STDIN), "limits": {"cpu_seconds": 0}}, tokenizer)


def test_a_machine_that_cannot_judge_is_told_before_it_works(
    code_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = code_world.environment
    rules = EnvironmentRules(
        name="code", config=environment.config.model_dump(), environment_hash=environment.environment_hash
    )
    assert environment_of(rules, environment.tokenizer).environment_hash == environment.environment_hash
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="apt install bubblewrap"):
        environment_of(rules, environment.tokenizer)
    assert environment_of(rules, environment.tokenizer, judges=False).num_problems == environment.num_problems


def test_a_program_that_says_it_was_killed_is_uncertain(code_world: World) -> None:
    found = code_world.environment.judge_text(
        code_world.problems["bits_0_stdin"], "```python\nimport os\nos._exit(137)\n```"
    )
    assert (found.score, found.certain) == (0.0, False)


def test_limits_are_in_the_hash(code_world: World) -> None:
    config = code_world.environment.config
    other = config.model_copy(update={"limits": config.limits.model_copy(update={"cpu_seconds": 0.4})})
    changed = Code(CodeConfig.model_validate(other.model_dump()), code_world.environment.tokenizer)
    assert changed.environment_hash != code_world.environment.environment_hash
