"""Numbers as Roman numerals: an environment for proofpool in a package of its own.

In: a configuration, `{"largest": 3999}`. Out: an `Environment` whose problem i asks for a number below `largest`.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pydantic import Field, ValidationError

from protocol.environments.base import Environment, EnvironmentConfig, Problem
from protocol.errors import ConfigError
from protocol.tokenizer import Tokenizer

NUMERALS = (
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"),
    (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
)  # fmt: skip
HELD_BACK_EVERY = 10
"""Every tenth number is never trained on."""


class RomanConfig(EnvironmentConfig):
    """How large the numbers are. The settings of every environment come with the base class."""

    largest: int = Field(default=3999, ge=HELD_BACK_EVERY, le=3999)


class Roman(Environment):
    """Problem i asks for the i-th number that isn't held back."""

    config: RomanConfig

    @property
    def num_problems(self) -> int:
        return self.config.largest - self.config.largest // HELD_BACK_EVERY

    def identity(self) -> dict[str, Any]:
        return {"package": "proofpool-roman", "version": version("proofpool-roman")}

    def held_back(self, count: int) -> list[Problem]:
        numbers = range(HELD_BACK_EVERY, self.config.largest + 1, HELD_BACK_EVERY)
        if count > len(numbers):
            raise ConfigError("roman hasn't got so many held-back problems", f"{len(numbers)} of {count}")
        return [self._ask(self.num_problems + place, number) for place, number in enumerate(numbers[:count])]

    def difficulty(self, problem: Problem) -> dict[str, float]:
        return {"letters": float(len(problem.entry["answer"]))}

    def _problem(self, index: int) -> Problem:
        return self._ask(index, index + index // (HELD_BACK_EVERY - 1) + 1)

    def _ask(self, index: int, number: int) -> Problem:
        question = f"Write {number} as a Roman numeral. Answer with the numeral only."
        return Problem(index, f"roman:{number}", "roman", question, {"answer": numeral(number)})

    def _score(self, problem: Problem, answer: str | None) -> float:
        """1 for the numeral; half for the right letters in another order, where the rules give partial credit."""
        if answer is None:
            return 0.0
        right = problem.entry["answer"]
        if answer == right:
            return 1.0
        return 0.5 if len(answer) == len(right) and sorted(answer) == sorted(right) else 0.0


def load(config: dict[str, Any], tokenizer: Tokenizer) -> Roman:
    """What the entry point names. Raises ConfigError naming what is wrong with a configuration."""
    try:
        return Roman(RomanConfig.model_validate(config), tokenizer)
    except ValidationError as error:
        raise ConfigError("the environment's configuration is wrong", str(error)) from error


def numeral(number: int) -> str:
    """
    >>> numeral(1776)
    'MDCCLXXVI'
    """
    letters = ""
    for value, letter in NUMERALS:
        letters += letter * (number // value)
        number %= value
    return letters
