"""Which problems a test set has too: by the prompt, and by 13 words in a row.

In: test sets as files with a column of questions, and prompts to look up. Out: whether each is in a set. A set is held
as hashes: 16 bytes a prompt and 8 a word, before Python's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from protocol.errors import MalformedFile, UsageError
from trainer.data_prompts import prompt_key, word_grams
from trainer.data_rows import SourceRow, source_rows

QUESTION_COLUMNS = ("prompt", "question", "problem")
"""Where a question is, by what files are usually like; the first that a row has."""
MAX_GRAMS = 1 << 24

Overlap = Literal["prompt", "words"]


@dataclass
class Questions:
    """The questions of a test set."""

    name: str
    prompts: set[bytes] = field(default_factory=set)
    grams: set[int] = field(default_factory=set)

    def add(self, prompt: str) -> None:
        """Raises UsageError where there is no more room."""
        self.prompts.add(prompt_key(prompt))
        self.grams.update(word_grams(prompt))
        if len(self.grams) > MAX_GRAMS:
            raise UsageError(
                "a test set is too large", f"over {MAX_GRAMS} word grams in {self.name}", "split it, and name each part"
            )

    def overlap(self, prompt: str) -> Overlap | None:
        """How a prompt is in the set: as it is, by words in a row, or not."""
        if prompt_key(prompt) in self.prompts:
            return "prompt"
        return "words" if any(gram in self.grams for gram in word_grams(prompt)) else None


def questions_of(path: Path, prompt_column: str | None = None) -> Questions:
    """A file's questions, from `prompt_column` where its rows have that. Raises MalformedFile naming a row without."""
    columns = (*([prompt_column] if prompt_column else []), *QUESTION_COLUMNS)
    questions = Questions(str(path))
    for row in source_rows(path, columns.__contains__):
        questions.add(_question(row, columns))
    return questions


def _question(row: SourceRow, columns: tuple[str, ...]) -> str:
    name = next((name for name in columns if name in row.values), None)
    if name is None:
        raise MalformedFile(f"{row.where} has no question", f"no column {' or '.join(columns)}", "rename the column")
    value = row.values[name]
    if not isinstance(value, str) or not value.strip():
        raise MalformedFile(f"{row.where} has no question", f"{name} is {str(value)[:40]!r}", "it must be a text")
    return value
