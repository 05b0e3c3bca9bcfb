"""Rows of a public data set, parquet or JSON lines, whatever its columns are.

In: a path and which columns are wanted. Out: one row after the other as a dict, with names for it; memory holds
16 rows. What a row means is `data_columns.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from protocol.environments.problem_files import MAX_INFO_VALUES, MAX_ROW_BYTES, ROWS_AT_ONCE
from protocol.errors import MalformedFile, UsageError
from protocol.unfolding import read_json


class SourceRow(NamedTuple):
    """`where` names the row, counted from 0, for messages; `name` is an id of the file's name and its number."""

    where: str
    name: str
    values: dict[str, Any]


def source_rows(path: Path, is_wanted: Callable[[str], bool]) -> Iterator[SourceRow]:
    """Raises UsageError where the file can't be opened, MalformedFile naming what can't be read."""
    read = _parquet_rows if path.suffix == ".parquet" else _json_rows
    try:
        for number, row in enumerate(read(path, is_wanted)):
            yield SourceRow(f"row {number} of {path}", f"{path.stem}_{number}", row)
    except OSError as error:
        raise UsageError("a data file can't be read", str(error), "name a parquet or JSON lines file") from error


def _json_rows(path: Path, is_wanted: Callable[[str], bool]) -> Iterator[dict[str, Any]]:
    number = 0
    with path.open("rb") as file:
        while line := file.readline(MAX_ROW_BYTES + 1):
            if len(line) > MAX_ROW_BYTES:
                raise MalformedFile(f"row {number} of {path} is too long", f"over {MAX_ROW_BYTES} bytes")
            if line.strip():
                row = _json_row(line, f"row {number} of {path}")
                yield {name: value for name, value in row.items() if is_wanted(name)}
                number += 1


def _json_row(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = read_json(line, MAX_INFO_VALUES)
    except ValueError as error:
        raise MalformedFile(f"{where} is no JSON", str(error)[:300], "write one object a line") from error
    if not isinstance(row, dict):
        raise MalformedFile(f"{where} is no JSON object", type(row).__name__, "write one object a line")
    return row


def _parquet_rows(path: Path, is_wanted: Callable[[str], bool]) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            wanted = [name for name in file.schema_arrow.names if is_wanted(name)]
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=wanted):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise MalformedFile(f"{path} is no parquet file", str(error)[:300]) from error
