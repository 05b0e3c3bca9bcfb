"""Mutants of the contracts: one small change of logic each, that some test should notice.

In: Solidity sources. Out: `Mutant`s, each a line's replacement. A line is changed by what it holds: comparisons,
arithmetic, conditions, `if … revert` guards, statements that write, modifiers. Comments, imports, events, errors and
declarations aren't logic and stay as they are, and so does what the compiler asks for: the rest of an assignment that
began on the line above, and the first assignment of a storage pointer that a function returns.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

_SWAPS = (
    (" <= ", " < "),
    (" < ", " <= "),
    (" >= ", " > "),
    (" > ", " >= "),
    (" == ", " != "),
    (" != ", " == "),
    (" && ", " || "),
    (" || ", " && "),
    (" + ", " - "),
    (" - ", " + "),
    (" * ", " / "),
    (" / ", " * "),
    (" % ", " + "),
    (" += ", " -= "),
    (" -= ", " += "),
    ("Math.min(", "Math.max("),
    ("Math.max(", "Math.min("),
    ("true", "false"),
    ("false", "true"),
    ("if (!", "if ("),
)
_MODIFIERS = (" nonReentrant", " onlyCourt", " onlyPools", " onlyLedger", " onlyCreator(poolId)")
_NOT_LOGIC = re.compile(
    r"^\s*(//|/\*|\*|import|pragma|event|error|using|contract|library|abstract|struct|enum|constructor|modifier)"
)
_GUARD = re.compile(r"^(\s*)if \(.*\) revert [^;]*;\s*$")
_WRITE = re.compile(r"^\s*[A-Za-z_][\w.\[\]()]* (=|\+=|-=|\|=) [^;]*;\s*$|^\s*[\w.\[\]]+(\+\+|--);\s*$")
_RETURNS = re.compile(r"\breturns \(([^)]*)\)")
_STORAGE_NAME = re.compile(r" storage (\w+)")
_CALL = re.compile(r"^\s*(?!return|emit|revert)[A-Za-z_][\w.()]*\([^;]*\);\s*$")


@dataclass(frozen=True)
class Mutant:
    """Line `line` (from 1) of `file` becomes `after`."""

    file: str
    line: int
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}: {self.before.strip()}  ->  {self.after.strip() or '(nothing)'}"

    def apply(self, source: str) -> str:
        """Raises ValueError where the line isn't the one that the mutant was made of."""
        lines = source.split("\n")
        if lines[self.line - 1] != self.before:
            raise ValueError(f"{self.file}:{self.line} has changed")
        lines[self.line - 1] = self.after
        return "\n".join(lines)


def mutants_of(file: str, source: str) -> list[Mutant]:
    """All mutants of a source, in order."""
    lines = source.split("\n")
    pointers = {name for names in _RETURNS.findall(source) for name in _STORAGE_NAME.findall(names)}
    return [
        Mutant(file, number, line, changed)
        for number, (above, line) in enumerate(zip(["", *lines], lines, strict=False), start=1)
        if _is_logic(line)
        for changed in dict.fromkeys(_changes(line))
        if changed != line and (changed or not _is_needed(above, line, pointers))
    ]


def sample(folder: Path, count: int, seed: int) -> Sequence[Mutant]:
    """`count` mutants of the contracts in a folder, each file by its share of all; the same ones for a seed."""
    everything = [mutant for path in sorted(folder.glob("*.sol")) for mutant in mutants_of(path.name, path.read_text())]
    chosen = random.Random(seed).sample(everything, min(count, len(everything)))
    return sorted(chosen, key=lambda mutant: (mutant.file, mutant.line, mutant.after))


def _is_logic(line: str) -> bool:
    code = line.split("//")[0]
    return bool(code.strip()) and not _NOT_LOGIC.match(line) and " constant " not in code and " immutable " not in code


def _is_needed(above: str, line: str, pointers: Set[str]) -> bool:
    """Whether nothing would compile without the line."""
    return above.rstrip().endswith(" =") or line.partition(" = ")[0].strip() in pointers


def _changes(line: str) -> Iterator[str]:
    code, mark, comment = line.partition("//")
    for old, new in _SWAPS:
        for place in re.finditer(re.escape(old), code):
            yield code[: place.start()] + new + code[place.end() :] + mark + comment
    for modifier in _MODIFIERS:
        if modifier in code:
            yield code.replace(modifier, "", 1) + mark + comment
    if _GUARD.match(code) or _WRITE.match(code) or _CALL.match(code):
        yield ""
