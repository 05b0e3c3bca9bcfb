"""`proofpool trainer data stats`: what is in a problem file, and what of it is in test sets too.

In: a problem file (docs/environments.md) and test sets. Out: a `DataStats`, with the dataset hash that rules pin. The
file is gone through once after it is read; memory holds some bytes a problem and the test sets' hashes.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from protocol.environments.problem_files import FileProblem, ProblemFile
from protocol.wire import Hash32
from trainer.data_overlap import Questions, questions_of
from trainer.data_prompts import prompt_key


class Spread(BaseModel):
    """Of `count` values: the least, the nearest-rank quantiles, the greatest."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    count: int
    least: float
    p10: float
    p50: float
    p90: float
    greatest: float

    def __str__(self) -> str:
        values = (self.least, self.p10, self.p50, self.p90, self.greatest)
        return " ".join(f"{value:g}" for value in values) + f"  ({self.count} values)"


class FileOverlap(BaseModel):
    """Problems that a test set has too; each is counted once."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    against: str
    same_prompt: int
    same_words: int
    """Others with 13 words in a row that the test set has."""
    share: float
    """Of all problems, those of either kind."""


class DataStats(BaseModel):
    """The document of `trainer data stats`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    dataset_hash: Hash32
    num_problems: int
    task_types: dict[str, int]
    prompt_characters: Spread | None
    """None without problems."""
    solve_rates: dict[str, Spread]
    """By column; a row without a value isn't counted."""
    num_duplicates: int
    """Problems whose prompt an earlier one has, up to white space and case."""
    overlaps: tuple[FileOverlap, ...]

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"dataset hash: {self.dataset_hash}"
        types = ", ".join(f"{count} {name}" for name, count in self.task_types.items())
        yield f"problems: {self.num_problems}" + (f" ({types})" if types else "")
        yield f"duplicate prompts: {self.num_duplicates}"
        if self.prompt_characters or self.solve_rates:
            yield "least, 10 %, 50 %, 90 %, greatest:"
        if self.prompt_characters:
            yield f"  prompt characters: {self.prompt_characters}"
        for column, spread in self.solve_rates.items():
            yield f"  {column}: {spread}"
        for found in self.overlaps:
            yield (
                f"in {found.against}: {found.same_prompt + found.same_words} problems ({found.share:.2%}), "
                f"{found.same_prompt} by the prompt, {found.same_words} more by 13 words in a row"
            )


class _Counts:
    """What is counted problem by problem."""

    def __init__(self, against: Sequence[Questions]) -> None:
        self.against = against
        self.task_types = Counter[str]()
        self.characters = array("Q")
        self.rates: dict[str, array[float]] = {}
        self.prompts = set[bytes]()
        self.overlaps = [Counter[str]() for _ in against]

    def add(self, problem: FileProblem) -> None:
        self.task_types[problem.task_type] += 1
        self.characters.append(len(problem.prompt))
        self.prompts.add(prompt_key(problem.prompt))
        for column, rate in problem.solve_rates.items():
            self.rates.setdefault(column, array("d")).append(rate)
        for questions, counts in zip(self.against, self.overlaps, strict=True):
            if (overlap := questions.overlap(problem.prompt)) is not None:
                counts[overlap] += 1


def data_stats(path: Path, against: Sequence[Path] = ()) -> DataStats:
    """Raises ConfigError where the problem file can't be read, MalformedFile naming a bad row of any file."""
    file = ProblemFile(path)
    counts = _Counts([questions_of(one) for one in against])
    for problem in file:
        counts.add(problem)
    return DataStats(
        dataset_hash=file.dataset_hash,
        num_problems=len(file),
        task_types=dict(sorted(counts.task_types.items())),
        prompt_characters=_spread(counts.characters) if file else None,
        solve_rates={column: _spread(counts.rates[column]) for column in sorted(counts.rates)},
        num_duplicates=len(file) - len(counts.prompts),
        overlaps=tuple(
            _overlap(questions.name, found, len(file))
            for questions, found in zip(counts.against, counts.overlaps, strict=True)
        ),
    )


def _overlap(name: str, found: Counter[str], num_problems: int) -> FileOverlap:
    return FileOverlap(
        against=name,
        same_prompt=found["prompt"],
        same_words=found["words"],
        share=found.total() / num_problems if num_problems else 0.0,
    )


def _spread(values: Sequence[float]) -> Spread:
    """values: at least one."""
    found = np.quantile(np.asarray(values, np.float64), (0, 0.1, 0.5, 0.9, 1), method="inverted_cdf")
    least, p10, p50, p90, greatest = (float(value) for value in found)
    return Spread(count=len(values), least=least, p10=p10, p50=p50, p90=p90, greatest=greatest)
