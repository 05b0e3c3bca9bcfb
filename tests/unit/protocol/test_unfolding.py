"""JSON from outside is bounded before it is parsed: how many values, and how deep."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from protocol.unfolding import read_json


@pytest.fixture
def high_recursion_limit() -> Iterator[None]:
    """As a library may leave it: `json.loads` alone would follow nesting past the end of the stack."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)
    yield
    sys.setrecursionlimit(before)


def test_what_is_within_bounds_is_read() -> None:
    assert read_json('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert read_json(b"12", parse_int=float) == 12.0
    assert read_json("[" * 100 + "]" * 100)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
def test_nesting_is_bounded_whatever_the_interpreters_limit_is(high_recursion_limit: None, content: str) -> None:
    with pytest.raises(ValueError, match="recursion limit"):
        read_json(content)


@pytest.mark.parametrize(("content", "why"), [("[1,2,3]", "at most"), ("[1,", "EOF"), (b"\xff", "expected value")])
def test_too_many_values_and_what_is_no_json_are_refused(content: str | bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_json(content, most=3)
