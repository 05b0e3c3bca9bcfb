"""Questions of which some may stay without an answer: a status must not fail where one of its sources does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from protocol.errors import ProofpoolError, UsageError

T = TypeVar("T")


class Questions:
    """Example: `pool = questions.ask(client.pool)`; then `questions.unanswered` has a line for each silence."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Each line once, in order."""
        return tuple(self._lines)

    def ask(self, question: Callable[[], T]) -> T | None:
        """The answer, or None and a line in `unanswered`. What is configured wrong is no silence, and travels."""
        try:
            return question()
        except UsageError:
            raise
        except ProofpoolError as error:
            self._lines[f"{error.what}: {error.why}"] = None
            return None
