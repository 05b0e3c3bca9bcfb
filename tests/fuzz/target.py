"""What is fuzzed: a function that takes any bytes, and the errors that it may answer them with.

In: bytes of a fuzzer. Out: nothing; every exception that isn't in `allowed` is a finding, and so is an input that
takes longer than `max_seconds`. `Choices` makes decisions out of bytes, for targets that build their input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

CORPUS = Path(__file__).parent / "corpus"

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """One parser. `seeds` are well-formed inputs; `is_json` has documents mutated by their structure as well."""

    name: str
    run: Callable[[bytes], object]
    allowed: tuple[type[Exception], ...]
    seeds: Callable[[], list[bytes]]
    is_json: bool = False
    max_seconds: float = 2.0

    def corpus(self) -> list[Path]:
        """Committed inputs, in order of name."""
        folder = CORPUS / self.name
        return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


class Choices:
    """Decisions read from bytes; zeros once they are used up.

    Example: `Choices(b"\\x05").pick("abc") == "c"`.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_spent(self) -> bool:
        return self._position >= len(self._data)

    def byte(self) -> int:
        if self.is_spent:
            return 0
        self._position += 1
        return self._data[self._position - 1]

    def integer(self, num_bytes: int) -> int:
        """0 to 256 ** num_bytes - 1."""
        return int.from_bytes(bytes(self.byte() for _ in range(num_bytes)), "little")

    def below(self, count: int) -> int:
        """0 to count - 1."""
        return self.integer(1 if count <= 256 else 4) % count

    def flag(self) -> bool:
        return bool(self.byte() & 1)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def bytes(self, max_bytes: int) -> bytes:
        """Up to so many, as a length that is read first says."""
        size = self.below(max_bytes + 1)
        start, self._position = self._position, min(len(self._data), self._position + size)
        return self._data[start : self._position]

    def rest(self) -> bytes:
        start, self._position = self._position, len(self._data)
        return self._data[start:]
