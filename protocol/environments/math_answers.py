"""Answers to math problems as text: where they are in a completion, and what two of them may be read as.

In: completions, and the gold answers of problem files. Out: the last boxed answer; pairs of LaTeX expressions of which
one must be equal for the answer to be right (`math_judge.py` compares them), or a decision where nothing needs
comparing. Everything here is string work, the same on every machine.

What mathematics doesn't settle is settled so, and said in docs/environments.md:
- a unit may be left out; where both name one, it is converted, and another dimension is wrong;
- a percentage may be written with its sign, without it, or as a fraction; an angle in degrees or in radians;
- words are compared as words; capitals are never told apart;
- `x^12` is read as `x^{12}`, and a ratio as the number it makes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from protocol.environments.math_units import Unit, unit_of

MAX_ANSWER_BYTES = 2_048
MAX_NESTING = 32
"""Longer or deeper answers are wrong, whatever they mean: they would only keep the judge busy."""

BOXES = ("\\boxed", "\\fbox")
UNICODE = str.maketrans({
    "−": "-", "–": "-", "—": "-", "×": "\\times ", "·": "\\cdot ", "÷": "\\div ", "°": "^\\circ ", "π": "\\pi ",
    "∞": "\\infty ", "≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ", "∪": "\\cup ", "∩": "\\cap ", "∅": "\\emptyset ",
    "∈": "\\in ", "±": "\\pm ", "²": "^2", "³": "^3", "½": "\\frac{1}{2}", "¼": "\\frac{1}{4}", "¾": "\\frac{3}{4}",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "’": "'", "％": "%", "，": ",",
})  # fmt: skip
WRAPPERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
TEXT = r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mbox|hbox|operatorname)"
WHOLE_TEXT = re.compile(TEXT + r"\s*\{([^{}]*)\}")
JOINER = re.compile(r"\s*,?\s*(?:" + TEXT + r"\s*\{\s*,?\s*(?:and|or)\s*\}|(?<=[\s\d}])(?:and|or)(?=[\s\\]))\s*")
SPACES = re.compile(r"(?<!\\)\\[,;: ]|\\quad|\\qquad|~|\s+")
THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:\{,\}|,\\!|,|\\,|\s)\d{3})+(?![\d])")
TYPESET_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:\{,\}|,\\!)\d{3})+(?![\d])")
"""Within brackets a plain comma separates members."""
BRACKETS = ("(", "[", "{", "\\{")
MIXED = re.compile(r"^(-?)\s*(\d+)\s+(\d+)\s*/\s*(\d+)$|^(-?)\s*(\d+)\s*\\[dt]?frac\s*\{(\d+)\}\s*\{(\d+)\}$")
ODD_ROOT = re.compile(r"\\sqrt\s*\[\s*(\d*[13579])\s*\]\s*\{\s*-\s*([\d.]+)\s*\}")
DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.])")
IMAGINARY = re.compile(r"(?<![A-Za-z\\_])i(?![A-Za-z])")
WORDS = re.compile(r"[A-Za-z][A-Za-z' \-]*")
CHOICE = re.compile(r"\(\s*([A-Z])\s*\)|([A-Z])[.):]?")
IMAGINARY_UNIT = r"(\\sqrt{-1})"
LEAST_BARE_WORD = 4
"""Fewer letters outside \\text are a product of variables."""


@dataclass(frozen=True)
class Comparison:
    """What is to be compared: the answer is right if any pair is equal, or as `decided`."""

    pairs: tuple[tuple[str, str], ...] = ()
    decided: bool | None = None


RIGHT, WRONG = Comparison(decided=True), Comparison(decided=False)


def boxed(text: str) -> str | None:
    r"""What the last box of a text holds; None without a box, or where the last one isn't closed.

    >>> boxed(r"\boxed{1} no: \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    start, name = max((text.rfind(name), name) for name in BOXES)
    if start < 0:
        return None
    inside = text[start + len(name) :].lstrip()
    if not inside.startswith("{"):
        return None
    end = _closing(inside)
    return None if end is None else inside[1:end].strip()


def comparison(gold: str, answer: str) -> Comparison:
    """What decides whether an answer is right."""
    if len(answer.encode(errors="replace")) > MAX_ANSWER_BYTES or _is_too_deep(answer):
        return WRONG
    left, right = _bare(gold), _bare(answer)
    if not right or not left:
        return WRONG
    if left == right:
        return RIGHT
    if (told := _compared_as_words(left, right)) is not None:
        return RIGHT if told else WRONG
    return _with_units(left, right)


def _closing(text: str) -> int | None:
    """Where the brace that opens a text is closed; escaped ones don't count."""
    depth, place = 0, 0
    while place < len(text):
        if text[place] == "\\":
            place += 2
            continue
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
        place += 1
    return None


def _is_too_deep(text: str) -> bool:
    depth = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if depth > MAX_NESTING:
            return True
    return text.count("^") > MAX_NESTING


def _bare(text: str) -> str:
    """Without what changes no meaning: wrappers, layout, thousands separators, a final full stop."""
    text = text.translate(UNICODE).strip()
    text = re.sub(r"\\(?:displaystyle|textstyle|left|right|big|Big|bigl|bigr|Bigl|Bigr)(?![A-Za-z])", "", text)
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("\\cfrac", "\\frac")
    for opening, closing in WRAPPERS:
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening + closing):
            text = text[len(opening) : len(text) - len(closing)].strip()
    text = text.rstrip(" .;,") if not text.endswith("\\,") else text
    text = (TYPESET_THOUSANDS if text.startswith(BRACKETS) else THOUSANDS).sub(_without_separators, text)
    text = JOINER.sub(", ", text.replace("\\!", ""))
    text = SPACES.sub(" ", text).strip().replace("\\varnothing", "\\emptyset")
    return _mixed(ODD_ROOT.sub(r"(-\\sqrt[\1]{\2})", text))


def _without_separators(found: re.Match[str]) -> str:
    r"""A list such as `1,200` stays what it may be, a number; `1, 200` isn't touched: there is a space."""
    return re.sub(r"\D", "", found.group())


def _mixed(text: str) -> str:
    if not (found := MIXED.match(text)):
        return text
    sign, whole, part, parts = found.group(1, 2, 3, 4) if found.group(2) else found.group(5, 6, 7, 8)
    return f"{sign}({whole}+\\frac{{{part}}}{{{parts}}})"


def _compared_as_words(gold: str, answer: str) -> bool | None:
    """Whether two answers in words are the same; None where the gold answer isn't in words."""
    if (choice := _choice(gold)) is not None and (chosen := _choice(answer)) is not None:
        return choice == chosen
    left = _words(gold)
    if left is None:
        return False if _words(answer) is not None and _is_number(gold) else None
    right = _words(answer)
    return right is not None and left == right


def _choice(text: str) -> str | None:
    """The letter of a multiple-choice answer, however it is set."""
    found = CHOICE.fullmatch(_without_text(text).strip())
    return None if found is None else found.group(1) or found.group(2)


def _words(text: str) -> str | None:
    plain = " ".join(_without_text(text).split())
    is_text = WHOLE_TEXT.fullmatch(text) is not None and len(plain) > 1
    if not WORDS.fullmatch(plain) or not (is_text or len(plain) >= LEAST_BARE_WORD):
        return None
    return plain.casefold()


def _without_text(text: str) -> str:
    return WHOLE_TEXT.sub(lambda found: found.group(1), text)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[\d.,]+", text) is not None


def _with_units(gold: str, answer: str) -> Comparison:
    left, gold_unit = unit_of(gold)
    right, answer_unit = unit_of(answer)
    left, right = _mixed(left), _mixed(right)
    if gold_unit and answer_unit and gold_unit != answer_unit:
        if gold_unit.dimension != answer_unit.dimension:
            return WRONG
        return Comparison(_readings(_converted(left, gold_unit), _converted(right, answer_unit)))
    if left == right:
        return RIGHT
    pairs = _readings(left, right)
    if gold_unit and not answer_unit and gold_unit.is_number:
        pairs += _readings(_converted(left, gold_unit), right)
    if answer_unit and not gold_unit and answer_unit.is_number:
        pairs += _readings(left, _converted(right, answer_unit))
    return Comparison(pairs)


def _converted(value: str, unit: Unit) -> str:
    return value if unit.factor == "1" else f"({value})\\cdot {unit.factor}"


def _readings(gold: str, answer: str) -> tuple[tuple[str, str], ...]:
    """The pair as it is; with its decimals as fractions, since rounding would part large numbers; with i² = −1."""
    readings = [(gold, answer)]
    if DECIMAL.search(gold) or DECIMAL.search(answer):
        readings.append((DECIMAL.sub(_fraction, gold), DECIMAL.sub(_fraction, answer)))
    if IMAGINARY.search(gold) or IMAGINARY.search(answer):
        readings.append((IMAGINARY.sub(IMAGINARY_UNIT, gold), IMAGINARY.sub(IMAGINARY_UNIT, answer)))
    return tuple(readings)


def _fraction(found: re.Match[str]) -> str:
    whole, part = found.groups()
    return f"\\frac{{{int(whole + part)}}}{{{10 ** len(part)}}}"
