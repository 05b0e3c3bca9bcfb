"""The tests of a problem, from `verification_info` as PRIME-RL's data has it, and whether a run gives what one expects.

In: `{"inputs": [...], "outputs": [...]}`, with `fn_name` where a function is called; or `{"test_cases": [{"type",
"input", "output", "fn_name"}]}`; either one also as text or object under `ground_truth`. Out: `CodeTest`s. What is
expected stays here: a sandbox is told what to read or call, and nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from protocol.sandbox.process import Job, Run
from protocol.unfolding import read_json

MAX_TESTS = 1000
MAX_STDIN_BYTES = 32 << 20
MAX_VALUES = 1 << 20
MAX_INTEGER_DIGITS = 4000
"""Longer ones are compared as text: to convert them takes time that grows with the square."""
TOLERANCE = 1e-6
"""Absolute up to 1, relative above."""
FLOAT = re.compile(r"[-+]?\d+\.\d+(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+")
PYTHON = frozenset(("python", "python3"))


@dataclass(frozen=True)
class CodeTest:
    """Either what a program reads and prints, or what a function is called with and returns.

    Example: `CodeTest("1 2\\n", None, "3")` or `CodeTest("", ("add", [1, 2]), 3)`.
    """

    stdin: str
    call: tuple[str, list[Any]] | None
    expected: Any

    def job(self, code: str) -> Job:
        return Job(code, self.stdin.encode(), self.call)

    def is_right(self, run: Run) -> bool:
        """Whether what came out is what is expected; how the run ended isn't looked at."""
        if self.call is None:
            return same_text(run.stdout.decode(errors="replace"), self.expected)
        return _is_returned(run.returned, self.expected)


def tests_of(info: dict[str, Any]) -> tuple[CodeTest, ...]:
    """Raises ValueError for anything that is no set of tests for Python."""
    inner = info.get("ground_truth", info)
    inner = read_json(inner) if isinstance(inner, str) else inner
    if not isinstance(inner, dict | list):
        raise ValueError(f"its tests must be an object or a list, not {type(inner).__name__}")
    language = (inner if isinstance(inner, dict) else info).get("language") or "python"
    if str(language).lower() not in PYTHON:
        raise ValueError(f"its tests are for {str(language)[:40]!r}: there is a sandbox for Python only")
    tests = tuple(_cases(inner) if isinstance(inner, list) or "test_cases" in inner else _columns(inner))
    if not 1 <= len(tests) <= MAX_TESTS:
        raise ValueError(f"it has {len(tests)} tests, which must be 1 to {MAX_TESTS}")
    return tests


def same_text(printed: str, expected: str) -> bool:
    """Line by line and word by word; white space at the end of lines and of all doesn't count.

    >>> same_text("1  2 \\n3.0000001\\n\\n", "1 2\\n3.0"), same_text("1\\n2", "1 2")
    (True, False)
    """
    mine, theirs = ([line.split() for line in text.rstrip().splitlines()] for text in (printed, expected))
    return mine == theirs or (
        len(mine) == len(theirs)
        and all(len(a) == len(b) and all(map(_same_word, a, b)) for a, b in zip(mine, theirs, strict=True))
    )


def same_value(returned: Any, expected: Any) -> bool:
    """JSON values: lists in order, objects by key, numbers by `TOLERANCE` where a float is expected, true isn't 1."""
    if isinstance(expected, list):
        return (
            isinstance(returned, list) and len(returned) == len(expected) and all(map(same_value, returned, expected))
        )
    if isinstance(expected, dict):
        return (
            isinstance(returned, dict)
            and returned.keys() == expected.keys()
            and all(same_value(returned[key], expected[key]) for key in expected)
        )
    if isinstance(expected, float) and isinstance(returned, int | float) and not isinstance(returned, bool):
        return _near(float(returned), expected) if abs(returned) < 1e300 else returned == expected
    return type(returned) is type(expected) and bool(returned == expected)


def _is_returned(content: bytes, expected: Any) -> bool:
    """PRIME-RL's data wraps some expected values in a list of one: either is right."""
    try:
        returned = read_json(content, MAX_VALUES, parse_int=_integer, parse_constant=_refuse)
        alone = isinstance(expected, list) and len(expected) == 1 and same_value(returned, expected[0])
        return alone or same_value(returned, expected)
    except ValueError:
        return False


def _columns(info: dict[str, Any]) -> Iterator[CodeTest]:
    inputs, outputs, name = info.get("inputs"), info.get("outputs"), info.get("fn_name")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        raise ValueError("`inputs` and `outputs` must be lists of one length")
    return (_test(name, given, expected) for given, expected in zip(inputs, outputs, strict=True))


def _cases(info: Any) -> Iterator[CodeTest]:
    shared = None if isinstance(info, list) else info.get("fn_name")
    cases = info if isinstance(info, list) else info["test_cases"]
    if not isinstance(cases, list) or not all(
        isinstance(case, dict) and case.keys() >= {"input", "output"} for case in cases
    ):
        raise ValueError("`test_cases` must be a list of objects with `input` and `output`")
    for case in cases:
        name = case.get("fn_name") or shared
        if case.get("type", "function_call" if name else "stdin_stdout") == "stdin_stdout":
            name = None
        elif not name:
            raise ValueError("a test calls a function and doesn't name it")
        yield _test(name, case["input"], case["output"])


def _test(name: Any, given: Any, expected: Any) -> CodeTest:
    if name is None or name == "":
        stdin, printed = _lines(given), _lines(expected)
        if len(stdin) > MAX_STDIN_BYTES:
            raise ValueError(f"a test's input has {len(stdin)} characters, and {MAX_STDIN_BYTES} are given at most")
        return CodeTest(stdin, None, printed)
    if not isinstance(name, str):
        raise ValueError("`fn_name` must be a text")
    if isinstance(given, str):
        given = [read_json(line) for line in given.splitlines() if line.strip()]
        expected = read_json(expected) if isinstance(expected, str) else expected
    if not isinstance(given, list):
        raise ValueError("a call's input must be the list of its arguments")
    return CodeTest("", (name, given), expected)


def _lines(value: Any) -> str:
    """A text, or a list of its lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise ValueError(f"what a program reads and prints must be text, not {type(value).__name__}")
    return value


def _same_word(printed: str, expected: str) -> bool:
    if printed == expected:
        return True
    is_number = FLOAT.fullmatch(expected) and len(printed) <= 64 and (FLOAT.fullmatch(printed) or _is_integer(printed))
    return bool(is_number) and _near(float(printed), float(expected))


def _is_integer(word: str) -> bool:
    return word.lstrip("+-").isdecimal() and word.isascii() and len(word) - len(word.lstrip("+-")) <= 1


def _near(number: float, expected: float) -> bool:
    if not math.isfinite(number) or not math.isfinite(expected):
        return number == expected
    return abs(number - expected) <= TOLERANCE * max(1.0, abs(expected))


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= MAX_INTEGER_DIGITS else f"integer {digits}"


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
