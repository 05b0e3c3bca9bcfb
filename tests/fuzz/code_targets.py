"""Targets: what judges programs outside of their sandbox (an answer's text, a run's output), and problem files."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from protocol.environments.code_answer import program_in
from protocol.environments.code_tests import CodeTest, same_text, tests_of
from protocol.environments.problem_files import ProblemFile
from protocol.errors import MalformedFile
from protocol.sandbox.process import Run
from tests.fuzz.target import Choices, Target

EXPECTED: tuple[Any, ...] = ([1, [2.5, "x"], {"a": None}], 10**30, [True], "1\n2.5\n", {"a": [[]]})
ROW = {
    "problem_id": "p",
    "task_type": "code",
    "prompt": "?",
    "verification_info": '{"inputs": ["1"], "outputs": ["2"]}',
}


def find_program(data: bytes) -> None:
    """The program is a part of the text, whatever its fences."""
    text = data.decode("utf-8", "replace")
    program = program_in(text)
    assert program is None or all(line.strip() in text for line in program.split("\n"))


def judge_output(data: bytes) -> None:
    """A byte chooses what is expected, the rest came out."""
    choices = Choices(data)
    expected = choices.pick(EXPECTED)
    content = bytes(choices.rest())
    run = Run("exited", 0, content, content, b"", 0.0, 0.0, 0.0, 0)
    CodeTest("", ("f", []), expected).is_right(run)
    text = content.decode("utf-8", "replace")
    CodeTest("", None, "1\n2.5").is_right(run)
    assert same_text(text, text)


def read_tests(data: bytes) -> None:
    info = json.loads(data)
    if isinstance(info, dict):
        for test in tests_of(info):
            test.job("pass")


def read_problems(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problems.jsonl"
        path.write_bytes(data)
        file = ProblemFile(path)
        assert [problem.problem_id for problem in file] == [file[index].problem_id for index in range(len(file))]


def _answers() -> list[bytes]:
    return [b"So:\n```python\nprint(1)\n```\n", b"- a\n  ```\n  x\n  ```\n```cpp\ny\n```", b"```py\nx"]


def _outputs() -> list[bytes]:
    printed = [b"\x031\n2.5\n", b"\x03 1 \n2.50000001"]
    return [bytes([place]) + json.dumps(value).encode() for place, value in enumerate(EXPECTED)] + printed


def _tests() -> list[bytes]:
    case = {"type": "function_call", "fn_name": "f", "input": [1], "output": 2}
    call = {"fn_name": "f", "inputs": [[1], [2]], "outputs": [2, 3]}
    forms = (
        json.loads(str(ROW["verification_info"])),
        call,
        {"test_cases": [case]},
        {"ground_truth": json.dumps(call)},
    )
    return [json.dumps(form).encode() for form in forms]


def _problems() -> list[bytes]:
    return ["\n".join(json.dumps({**ROW, "problem_id": str(n), "solve_rate_x": n / 4}) for n in range(3)).encode()]


CODE_TARGETS = (
    Target("code_answer", find_program, (), _answers),
    Target("code_output", judge_output, (), _outputs),
    Target("code_tests", read_tests, (ValueError, RecursionError), _tests, is_json=True),
    Target("problem_file", read_problems, (MalformedFile,), _problems),
)
