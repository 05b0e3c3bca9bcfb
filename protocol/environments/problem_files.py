"""Problems from a file in PRIME-RL's columns, parquet or JSON lines: read once, checked, and then had one by one.

In: a path and the dataset hash that the rules pin. Out: `ProblemFile`, problem i by `file[i]`. The file is streamed
once, whatever its size, into an unnamed spool file of canonical lines: memory holds eight bytes a problem and one
problem at a time, and whoever changes the file later changes nothing here. The hash is over the canonical lines, so
that a parquet file and a JSON lines file with the same problems have the same one.

Columns: `problem_id`, `task_type`, `prompt`, `verification_info` (a JSON object, or its text), and any number of
`solve_rate…`, each 0 to 1 or null; other columns are passed over. Solve rates decide neither prompts nor rewards and
aren't hashed.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import weakref
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.canonical import canonical_json, hex0x, sha256
from protocol.errors import ConfigError, MalformedFile, NotCanonical, UsageError
from protocol.files import cache_folder
from protocol.unfolding import read_json

DATASETS_VARIABLE = "PROOFPOOL_DATASETS"
"""The folder in which a rule's dataset is looked for by its name."""

TEXT_COLUMNS = ("problem_id", "task_type", "prompt")
INFO_COLUMN = "verification_info"
RATE_PREFIX = "solve_rate"
MAX_PROBLEMS = 1 << 24
MAX_ROW_BYTES = 64 << 20
"""Some code problems carry tens of megabytes of test cases."""
MAX_INFO_VALUES = 1 << 22
MAX_NAME_CHARACTERS = 256
ROWS_AT_ONCE = 16


@dataclass(frozen=True)
class FileProblem:
    """One row of a problem file.

    Example: `FileProblem("sum_1", "code", "Add two numbers.", {"inputs": ["1 2"], "outputs": ["3"]}, {})`.
    """

    problem_id: str
    task_type: str
    prompt: str
    verification_info: dict[str, Any]
    solve_rates: dict[str, float]
    """By column name, 0 to 1; a null is left out."""


class ProblemFile:
    """The problems of a file in its order: `file[i]` for i from 0 to `len(file)` - 1."""

    def __init__(self, path: Path) -> None:
        """Reads the whole file once. Raises ConfigError where it can't be opened, MalformedFile naming a bad row."""
        self.path = path
        self._ends = array("Q", [0])
        self._spool = _unnamed_file()
        weakref.finalize(self, os.close, self._spool)
        self.dataset_hash = self._take_in()

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> FileProblem:
        """Raises UsageError outside 0 to `len` - 1."""
        if not 0 <= index < len(self):
            raise UsageError("no such problem", f"row {index} of {len(self)} in {self.path.name}")
        start, end = self._ends[index], self._ends[index + 1]
        (problem_id, task_type, prompt, info), rates = json.loads(os.pread(self._spool, end - start, start))
        return FileProblem(problem_id, task_type, prompt, json.loads(info), rates)

    def __iter__(self) -> Iterator[FileProblem]:
        return (self[index] for index in range(len(self)))

    def _take_in(self) -> str:
        digest, seen = hashlib.sha256(), set[bytes]()
        for number, row in enumerate(_rows(self.path)):
            if number >= MAX_PROBLEMS:
                raise MalformedFile("a problem file has too many rows", f"over {MAX_PROBLEMS} in {self.path}")
            try:
                hashed, rates = _checked(row)
            except (NotCanonical, RecursionError, TypeError, ValueError) as error:
                raise MalformedFile(f"row {number} of {self.path} is no problem", str(error)[:300]) from error
            name = sha256(str(row["problem_id"]).encode())[:16]
            if name in seen:
                raise MalformedFile(f"row {number} of {self.path} has an id that is taken", str(row["problem_id"]))
            seen.add(name)
            digest.update(hashed + b"\n")
            self._append(b"[" + hashed + b"," + json.dumps(rates).encode() + b"]")
        return hex0x(digest.digest())

    def _append(self, line: bytes) -> None:
        end = self._ends[-1]
        for start in range(0, len(line), 1 << 20):  # a write may take less than it is given, past 2 GiB
            os.pwrite(self._spool, line[start : start + (1 << 20)], end + start)
        self._ends.append(end + len(line))


def open_problem_file(name: str, dataset_hash: str) -> ProblemFile:
    """The dataset that rules name. Raises ConfigError where it isn't there or isn't the one with this hash."""
    folder = datasets_folder()
    path = folder / name
    if Path(name).name != name or not path.is_file():
        todo = f"put it into {folder}, or set {DATASETS_VARIABLE} to the folder that has it"
        raise ConfigError(f"there is no dataset {name!r}", f"{path} is no file", todo)
    file = ProblemFile(path)
    if file.dataset_hash != dataset_hash:
        raise ConfigError(
            f"the dataset {name!r} here isn't the one in the rules",
            f"{file.dataset_hash} against {dataset_hash}, {len(file)} problems",
            "get the file that the pool was made with",
        )
    return file


def datasets_folder() -> Path:
    """`$PROOFPOOL_DATASETS`, or `datasets` in the cache folder."""
    chosen = os.environ.get(DATASETS_VARIABLE)
    return Path(chosen) if chosen else cache_folder() / "datasets"


def _checked(row: dict[str, Any]) -> tuple[bytes, dict[str, float]]:
    """What of a row is hashed, as canonical JSON, and its solve rates. Raises ValueError or TypeError."""
    texts = [_text(row, column) for column in TEXT_COLUMNS]
    if any(len(text) > MAX_NAME_CHARACTERS for text in texts[:2]):
        raise ValueError(f"problem_id and task_type have at most {MAX_NAME_CHARACTERS} characters")
    hashed = canonical_json([*texts, _info_text(row.get(INFO_COLUMN))])
    if len(hashed) > MAX_ROW_BYTES:
        raise ValueError(f"it has {len(hashed)} bytes, and {MAX_ROW_BYTES} are read at most")
    rates = {column: _rate(column, row[column]) for column in sorted(row) if column.startswith(RATE_PREFIX)}
    return hashed, {column: rate for column, rate in rates.items() if rate is not None}


def _text(row: dict[str, Any], column: str) -> str:
    value = row.get(column)
    if isinstance(value, int) and not isinstance(value, bool) and column == "problem_id":
        return str(value)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{column} must be a text that isn't empty, not {str(value)[:40]!r}")
    return value


def _info_text(value: Any) -> str:
    """The text of `verification_info` as it is in the file, or of the object that is there, keys in order."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    if not isinstance(read_json(text, MAX_INFO_VALUES), dict):
        raise ValueError(f"{INFO_COLUMN} must be a JSON object, not {text[:40]!r}")
    return text


def _rate(column: str, value: Any) -> float | None:
    if value is None or value != value:  # parquet files from data frames write a missing number as NaN
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{column} must be from 0 to 1, not {str(value)[:40]}")
    return float(value)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    return _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError("a problem file can't be read", str(error)) from error
    with file:
        number = 0
        while line := file.readline(MAX_ROW_BYTES + 1):
            if len(line) > MAX_ROW_BYTES:
                raise MalformedFile(f"row {number} of {path} is too long", f"over {MAX_ROW_BYTES} bytes")
            if line.strip():
                yield _json_row(line, f"row {number} of {path}")
                number += 1


def _json_row(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = read_json(line, MAX_INFO_VALUES)
    except ValueError as error:
        raise MalformedFile(f"{where} is no JSON", str(error)[:300], "write one object a line") from error
    if not isinstance(row, dict):
        raise MalformedFile(f"{where} is no JSON object", f"{type(row).__name__}", "write one object a line")
    return row


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            wanted = [name for name in names if name in (*TEXT_COLUMNS, INFO_COLUMN) or name.startswith(RATE_PREFIX)]
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=wanted):
                yield from batch.to_pylist()
    except OSError as error:
        raise ConfigError("a problem file can't be read", str(error)) from error
    except pa.ArrowException as error:
        raise MalformedFile(f"{path} is no parquet file of problems", str(error)[:300]) from error


def _unnamed_file() -> int:
    """A file that is gone with its descriptor."""
    descriptor, path = tempfile.mkstemp(prefix="proofpool-problems.")
    Path(path).unlink()
    return descriptor
