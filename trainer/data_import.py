"""`proofpool trainer data import`: public data sets as one problem file, without duplicates and test questions.

    sources ─▶ problems ─▶ those that aren't there yet, nor in a test set ─▶ checked and hashed ─▶ out

In: parquet or JSON lines files (`data_columns.py` says which), test sets, where to. Out: the problem file, there whole
or not at all, and an `ImportReport`. Rows are streamed through a temporary folder; memory holds 32 bytes a problem,
the test sets' hashes and some thousand rows.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from protocol.canonical import sha256
from protocol.environments.problem_files import INFO_COLUMN, TEXT_COLUMNS, ProblemFile
from protocol.errors import MalformedFile, UsageError
from protocol.files import atomic_file
from protocol.wire import Hash32
from trainer.data_columns import Columns, ImportedProblem, problem_of
from trainer.data_overlap import Questions, questions_of
from trainer.data_prompts import prompt_key
from trainer.data_rows import source_rows

ENDINGS = (".jsonl", ".parquet")
GROUP_ROWS = 256
"""Of a parquet file, written together."""


class ImportReport(BaseModel):
    """The document of `trainer data import`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    dataset_hash: Hash32
    num_problems: int
    num_duplicates: int
    """Left out: an earlier row has the prompt, up to white space and case."""
    num_same_prompt: int
    """Left out: a test set has the prompt."""
    num_same_words: int
    """Left out: a test set has 13 words in a row of it."""

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"dataset hash: {self.dataset_hash}"
        yield f"problems: {self.num_problems}"
        yield f"left out: {self.num_duplicates} duplicates"
        yield (
            f"left out: {self.num_same_prompt} that a test set has by the prompt, "
            f"{self.num_same_words} more by 13 words in a row"
        )


def import_problems(
    sources: Sequence[Path], out: Path, columns: Columns, against: Sequence[Path] = (), keep_duplicates: bool = False
) -> ImportReport:
    """Raises UsageError for a name or file that won't do, MalformedFile naming a bad row; `out` is then as it was."""
    if out.suffix not in ENDINGS:
        raise UsageError("that is no name of a problem file", str(out), f"end it in {' or '.join(ENDINGS)}")
    choice = _Choice([questions_of(path, columns.prompt) for path in against], keep_duplicates)
    with tempfile.TemporaryDirectory(prefix="proofpool-import.") as folder:
        lines = Path(folder) / "problems.jsonl"
        with lines.open("w", encoding="utf-8") as file:
            for problem in choice.of(sources, columns):
                file.write(json.dumps(problem.columns(), ensure_ascii=False) + "\n")
        checked = ProblemFile(lines)
        if not len(checked):
            raise UsageError("no problem is left", f"{choice.dropped.total()} were left out", "name other sources")
        _move(lines if out.suffix == ".jsonl" else _parquet(lines, sorted(choice.rate_columns)), out)
    return ImportReport(
        dataset_hash=checked.dataset_hash,
        num_problems=len(checked),
        num_duplicates=choice.dropped["duplicate"],
        num_same_prompt=choice.dropped["prompt"],
        num_same_words=choice.dropped["words"],
    )


class _Choice:
    """Which problems are taken, and why the others aren't."""

    def __init__(self, against: Sequence[Questions], keep_duplicates: bool) -> None:
        self.against = against
        self.keep_duplicates = keep_duplicates
        self.prompts = set[bytes]()
        self.names = set[bytes]()
        self.rate_columns = set[str]()
        self.dropped = Counter[str]()

    def of(self, sources: Sequence[Path], columns: Columns) -> Iterator[ImportedProblem]:
        for path in sources:
            for row in source_rows(path, columns.is_wanted):
                problem = problem_of(row, columns)
                if (reason := self._reason(problem.prompt)) is not None:
                    self.dropped[reason] += 1
                    continue
                self._take(problem, row.where)
                yield problem

    def _reason(self, prompt: str) -> str | None:
        if not self.keep_duplicates and prompt_key(prompt) in self.prompts:
            return "duplicate"
        found = {questions.overlap(prompt) for questions in self.against}
        return next((reason for reason in ("prompt", "words") if reason in found), None)

    def _take(self, problem: ImportedProblem, where: str) -> None:
        name = sha256(problem.problem_id.encode())[:16]
        if name in self.names:
            todo = "name one of the files, or the row, otherwise"
            raise MalformedFile(f"{where} has an id that is taken", problem.problem_id, todo)
        self.names.add(name)
        self.prompts.add(prompt_key(problem.prompt))
        self.rate_columns.update(problem.solve_rates)


def _parquet(lines: Path, rate_columns: Sequence[str]) -> Path:
    """The same rows beside it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [(column, pa.string()) for column in (*TEXT_COLUMNS, INFO_COLUMN)]
    schema = pa.schema([*texts, *((column, pa.float64()) for column in rate_columns)])
    path = lines.with_suffix(".parquet")
    with lines.open("rb") as file, pq.ParquetWriter(path, schema) as writer:
        while group := [_row(line) for line in islice(file, GROUP_ROWS)]:
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
    return path


def _row(line: bytes) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(line)
    return row


def _move(made: Path, out: Path) -> None:
    """Across file systems too, and whole or not at all."""
    with made.open("rb") as source, atomic_file(out) as target:
        shutil.copyfileobj(source, target)
