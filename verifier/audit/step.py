"""What an audit answers: steps, each ✓, ✗ or still open, and what they add up to.

In: a name and a check, which returns the values it saw or raises. Out: `Step`, and `Report` over all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from protocol.errors import VerificationFailed

Values = dict[str, str]
Check = Callable[[], Values]


class StepState(StrEnum):
    """`open` is neither: it hasn't happened yet, or nothing trusted is at hand to hold it against."""

    OK = "ok"
    FAILED = "failed"
    OPEN = "open"


MARKS = {StepState.OK: "✓", StepState.FAILED: "✗", StepState.OPEN: "·"}


class StillOpen(Exception):
    """A check has nothing to look at yet; the message says what it waits for."""


@dataclass(frozen=True)
class Step:
    name: str
    state: StepState
    values: Values
    why: str = ""


def take_step(name: str, check: Check) -> Step:
    """Run one check. Only "no" and "not yet" are answers; any other error travels."""
    try:
        return Step(name, StepState.OK, check())
    except VerificationFailed as error:
        return Step(name, StepState.FAILED, {}, str(error))
    except StillOpen as reason:
        return Step(name, StepState.OPEN, {}, str(reason))


def must_equal(what: str, found: object, expected: object) -> None:
    """Raises VerificationFailed, with both values, where they differ."""
    if found != expected:
        raise VerificationFailed(what, f"found {_shown(found)}, expected {_shown(expected)}")


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def must_hold(what: str, holds: bool, why: str = "") -> None:
    """Raises VerificationFailed unless it holds."""
    if not holds:
        raise VerificationFailed(what, why)


class Conclusion:
    """What an audit comes to; whoever has it says whether something is wrong (`has_failed`), and its `anchor`."""

    anchor: str

    @property
    def has_failed(self) -> bool:
        raise NotImplementedError

    @property
    def result(self) -> str:
        """`failed`, `ok`, or `consistent, not anchored`."""
        if self.has_failed:
            return "failed"
        return "ok" if self.anchor else "consistent, not anchored"

    @property
    def result_line(self) -> str:
        return f"{self.result}{f' (anchored: {self.anchor})' if self.anchor else ''}"

    @property
    def exit_code(self) -> int:
        return VerificationFailed.exit_code if self.has_failed else 0


@dataclass(frozen=True)
class Report(Conclusion):
    """An audit's result. `anchor` names what the heads were held against, empty without anything trusted.

    `as_of` says how fresh the evidence is.
    """

    subject: str
    steps: tuple[Step, ...]
    anchor: str
    as_of: str

    @property
    def has_failed(self) -> bool:
        return any(step.state is StepState.FAILED for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        return {
            "schema_version": 1,
            "subject": self.subject,
            "result": self.result,
            "anchor": self.anchor,
            "as_of": self.as_of,
            "steps": [asdict(step) for step in self.steps],
        }

    def lines(self) -> Iterable[str]:
        """For a terminal: a line a step, then the result."""
        width = max(len(step.name) for step in self.steps)
        for step in self.steps:
            values = "  ".join(f"{name} {value}" for name, value in step.values.items())
            yield f"{MARKS[step.state]} {step.name:<{width}}  {values or step.why}"
        yield f"as of: {self.as_of}"
        yield f"{self.result_line}{self._counts()}"

    def _counts(self) -> str:
        """How many steps failed and are open: `ok` may stand over steps that nothing was there to hold against."""
        counted = {"failed": StepState.FAILED, "open": StepState.OPEN}
        numbers = {word: sum(step.state is state for step in self.steps) for word, state in counted.items()}
        said = ", ".join(f"{number} {word}" for word, number in numbers.items() if number)
        return f"; of {len(self.steps)} steps {said}" if said else ""
