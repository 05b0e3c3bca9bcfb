"""Answers as text: the last box, what is bare of layout, words, units, and what is too long to be one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.environments.math_answers import MAX_ANSWER_BYTES, MAX_NESTING, boxed, comparison
from protocol.environments.math_units import unit_of


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{5}", "5"),
        (r"\boxed{4}, no: \boxed{5}.", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\}}", r"\}"),
        (r"\boxed{ {a}{b} } }", "{a}{b}"),
        (r"\boxed {5}", "5"),
        (r"\fbox{5}", "5"),
        (r"\boxed{x=\boxed{5}}", "5"),
        (r"\boxed{}", ""),
        (r"\boxed{5", None),
        (r"\boxed{4} \boxed{5", None),
        (r"\boxed 5", None),
        ("5", None),
        ("", None),
        ("\\boxed{\\", None),
    ],
)
def test_the_answer_is_what_the_last_box_holds(text: str, answer: str | None) -> None:
    assert boxed(text) == answer


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="\\boxed{}5 ", max_size=60))
def test_no_text_breaks_the_search_for_a_box(text: str) -> None:
    found = boxed(text)
    assert found is None or found in text


@pytest.mark.parametrize(
    ("text", "value", "dimension"),
    [
        (r"5\text{ cm}", "5", "length^1"),
        (r"5\text{ cm}^2", "5", "length^2"),
        (r"5 cm^{3}", "5", "length^3"),
        ("5 m", "5", "length^1"),
        ("5m", "5m", None),
        ("5x", "5x", None),
        (r"2\pi\text{ cm}", r"2\pi\text{ cm}", None),
        (r"\$5", "5", "money"),
        (r"-\$5", "-5", "money"),
        (r"50\%", "50", "share"),
        (r"90^{\circ}", "90", "angle"),
        (r"20^\circ\text{C}", "20", "temperature C"),
        (r"12\text{ apples}", "12", None),
        (r"\text{apples}", r"\text{apples}", None),
        (r"x\text{ cm}", r"x\text{ cm}", None),
        (r"\sin x", r"\sin x", None),
    ],
)
def test_a_unit_stands_after_a_number(text: str, value: str, dimension: str | None) -> None:
    found, unit = unit_of(text)
    assert (found, unit and unit.dimension) == (value, dimension)


@pytest.mark.parametrize(
    ("gold", "answer", "decided"),
    [
        ("5", "$5$", True),
        ("5", "", False),
        ("5", "1" * (MAX_ANSWER_BYTES + 1), False),
        ("5", "(" * (MAX_NESTING + 1) + "5" + ")" * (MAX_NESTING + 1), False),
        ("5", "5" + "^1" * (MAX_NESTING + 1), False),
        ("5", "9" * 10**6, False),
        (r"\text{north}", "North", True),
        (r"\text{north}", "5", False),
        ("5", "five", False),
        ("(A)", "A", True),
        (r"5\text{ cm}", r"5\text{ kg}", False),
    ],
)
def test_what_needs_no_mathematics_is_decided_at_once(gold: str, answer: str, decided: bool) -> None:
    found = comparison(gold, answer)
    assert (found.decided, found.pairs) == (decided, ())


def test_readings_are_compared_and_any_may_be_equal() -> None:
    assert comparison("5", "x").pairs == (("5", "x"),)
    assert comparison(r"50\%", "0.5").pairs[-1] == (r"(50)\cdot \frac{1}{100}", r"\frac{5}{10}")
    assert comparison(r"2\text{ h}", r"120\text{ min}").pairs == ((r"(2)\cdot 3600", r"(120)\cdot 60"),)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80), st.text(alphabet="\\{}()[]^_%$, .0123456789abcxtfrmel", max_size=80))
def test_any_two_texts_can_be_compared(gold: str, answer: str) -> None:
    found = comparison(gold, answer)
    assert (found.decided is None) == bool(found.pairs)
