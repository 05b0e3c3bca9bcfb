"""Units at the end of an answer: which there are, what they measure, and their ratio to the first of their kind.

In: an answer in LaTeX. Out: its value, and the `Unit` that follows it, None where there is none that is known: other
words after a number (`5\\text{ apples}`) are dropped, for they count the same things as the question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """`factor` is LaTeX, exact: how many of the dimension's first unit it is; `is_number`: it has a value by itself."""

    dimension: str
    factor: str
    is_number: bool = False


def _named(dimension: str, factor: str, *names: str, is_number: bool = False) -> dict[str, Unit]:
    return {name: Unit(dimension, factor, is_number) for name in names}


def _lengths() -> dict[str, tuple[int, int, tuple[str, ...]]]:
    """In tenths of a millimetre, so that inches are whole: 254."""
    return {
        "millimetre": (10, 1, ("mm", "millimeter", "millimeters", "millimetre", "millimetres")),
        "centimetre": (100, 1, ("cm", "centimeter", "centimeters", "centimetre", "centimetres")),
        "decimetre": (1_000, 1, ("dm", "decimeter", "decimeters", "decimetre", "decimetres")),
        "metre": (10_000, 1, ("m", "meter", "meters", "metre", "metres")),
        "kilometre": (10_000_000, 1, ("km", "kilometer", "kilometers", "kilometre", "kilometres")),
        "inch": (254, 1, ("in", "inch", "inches")),
        "foot": (3_048, 1, ("ft", "foot", "feet")),
        "yard": (9_144, 1, ("yd", "yard", "yards")),
        "mile": (16_093_440, 1, ("mi", "mile", "miles")),
    }


def _powers() -> dict[str, Unit]:
    """Lengths, areas and volumes."""
    units: dict[str, Unit] = {}
    for tenths, _, names in _lengths().values():
        for power, prefix in ((1, ()), (2, ("square ", "sq ", "sq. ")), (3, ("cubic ", "cu ", "cu. "))):
            unit = Unit(f"length^{power}", str(tenths**power))
            for name in names:
                units |= {before + name: unit for before in prefix}
                units[name if power == 1 else f"{name}^{power}"] = unit
    return units


UNITS: dict[str, Unit] = {
    **_powers(),
    **_named("length^3", str(1_000**3), "l", "L", "liter", "liters", "litre", "litres"),
    **_named("length^3", str(100**3), "ml", "mL", "milliliter", "milliliters", "millilitre", "millilitres"),
    **_named("mass", "1", "mg", "milligram", "milligrams"),
    **_named("mass", "1000", "g", "gram", "grams"),
    **_named("mass", "1000000", "kg", "kilogram", "kilograms"),
    **_named("mass", "1000000000", "tonne", "tonnes"),
    **_named("weight", "1", "oz", "ounce", "ounces"),
    **_named("weight", "16", "lb", "lbs", "pound", "pounds"),
    **_named("time", "1", "s", "sec", "second", "seconds"),
    **_named("time", "60", "min", "mins", "minute", "minutes"),
    **_named("time", "3600", "h", "hr", "hrs", "hour", "hours"),
    **_named("time", "86400", "day", "days"),
    **_named("time", "604800", "week", "weeks"),
    **_named("long time", "1", "month", "months"),
    **_named("long time", "12", "year", "years", "yr", "yrs"),
    **_named("money", "1", "cent", "cents", "\\cent"),
    **_named("money", "100", "\\$", "$", "dollar", "dollars"),
    **_named("euros", "1", "€", "euro", "euros"),
    **_named("speed", "1", "m/s", "meters per second", "metres per second"),
    **_named("speed", "\\frac{5}{18}", "km/h", "kmh", "kilometers per hour", "kilometres per hour"),
    **_named("speed", "\\frac{1397}{3125}", "mph", "miles per hour"),
    **_named("temperature C", "1", "^\\circ C", "^\\circ\\text{C}", "degrees celsius"),
    **_named("temperature F", "1", "^\\circ F", "^\\circ\\text{F}", "degrees fahrenheit"),
    **_named("share", "\\frac{1}{100}", "\\%", "%", "percent", "pct", is_number=True),
    **_named("angle", "\\frac{\\pi}{180}", "^\\circ", "degree", "degrees", "deg", is_number=True),
    **_named("angle", "1", "radian", "radians", "rad", is_number=True),
}
TEXT_UNIT = re.compile(
    r"^(?P<value>.*?)\s*\\(?:text|mathrm|mbox|textrm|rm|operatorname)\s*\{\s*(?P<name>[^{}]*?)\s*\}"
    r"(?P<power>\s*\^\s*\{?\s*[23]\s*\}?)?\s*$",
    re.DOTALL,
)
SIGN_UNIT = re.compile(
    r"^(?P<value>.+?)\s*(?P<name>\\?%|\^\s*\{?\s*\\circ\s*\}?(?:\s*(?:\\text\{)?[CF]\}?)?|€|\\cent)\s*$"
)
BARE_UNIT = re.compile(
    r"^(?P<value>-?[\d.,/\s]*\d|.*[\d}])(?P<gap>\s*)(?P<name>[A-Za-z][A-Za-z./ ]*)(?P<power>\^\s*\{?[23]\}?)?$"
)
MONEY = re.compile(r"^(?P<sign>-?)\s*(?P<name>\\\$|\$|€)\s*(?P<value>[\d.].*)$")
LETTERS = re.compile(r"[A-Za-z]")
COMMAND = re.compile(r"\\[A-Za-z]+")


def unit_of(text: str) -> tuple[str, Unit | None]:
    r"""An answer's value and unit.

    >>> unit_of(r"5\text{ cm}^2")
    ('5', Unit(dimension='length^2', factor='10000', is_number=False))
    """
    if found := MONEY.match(text):
        return found["sign"] + found["value"], UNITS[found["name"]]
    if found := SIGN_UNIT.match(text):
        return found["value"].strip(), UNITS.get(_spelt(re.sub(r"[{}\s]|\\text", "", found["name"])))
    if found := TEXT_UNIT.match(text):
        return _text_unit(text, found)
    return _bare_unit(text)


def _text_unit(text: str, found: re.Match[str]) -> tuple[str, Unit | None]:
    value = found["value"].strip()
    if not value or not re.search(r"[\d})]$", value):
        return text, None
    return value, _unit(found["name"], found["power"])


def _bare_unit(text: str) -> tuple[str, Unit | None]:
    """Outside \\text a letter may be a variable: only known names after a number, one letter only after a space."""
    found = BARE_UNIT.match(text)
    if not found or LETTERS.search(COMMAND.sub("", found["value"])):
        return text, None
    unit = _unit(found["name"], found["power"])
    is_letter = len(found["name"].strip()) == 1
    if unit is None:
        is_word = len(found["name"].strip()) > 3 and found["gap"]
        return (found["value"].strip(), None) if is_word else (text, None)
    return (text, None) if is_letter and not found["gap"] else (found["value"].strip(), unit)


def _unit(name: str, power: str | None) -> Unit | None:
    exponent = "" if power is None else "^" + re.sub(r"\D", "", power)
    name = name.strip().rstrip(".")
    return UNITS.get(name + exponent) or UNITS.get(name.lower() + exponent)


def _spelt(sign: str) -> str:
    return {"^\\circC": "^\\circ C", "^\\circF": "^\\circ F"}.get(sign, sign)
