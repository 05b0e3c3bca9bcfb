"""Rows into a file, one after the other, in as much memory as a few of them take.

In: rows, a stream of bytes. Out: CSV with a header, one JSON document a line, or parquet in groups of rows. The same
rows make the same bytes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from enum import StrEnum
from typing import BinaryIO

from verifier.audit.reports.rows import COLUMNS, NUMBERS, Row

GROUP_ROWS, GROUP_CHARACTERS = 2_000, 4 << 20
"""A group of a parquet file is written when it has as much of either."""


class Format(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


def write_rows(rows: Iterable[Row], file: BinaryIO, row_format: Format) -> int:
    """How many they were."""
    writers = {Format.CSV: _write_csv, Format.JSONL: _write_jsonl, Format.PARQUET: _write_parquet}
    return writers[row_format](rows, file)


def _write_csv(rows: Iterable[Row], file: BinaryIO) -> int:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer, count = csv.writer(text, lineterminator="\n"), 0
    try:
        writer.writerow(COLUMNS)
        for count, row in enumerate(rows, start=1):  # noqa: B007
            writer.writerow(row.values())
    finally:
        text.detach()  # the file isn't ours to close
    return count


def _write_jsonl(rows: Iterable[Row], file: BinaryIO) -> int:
    count = 0
    for count, row in enumerate(rows, start=1):  # noqa: B007
        document = dict(zip(COLUMNS, row.values(), strict=True))
        file.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    return count


def _write_parquet(rows: Iterable[Row], file: BinaryIO) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.int64() if name in NUMBERS else pa.string()) for name in COLUMNS])
    count = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for group in _groups(rows):
            columns = zip(*(row.values() for row in group), strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            count += len(group)
    return count


def _groups(rows: Iterable[Row]) -> Iterable[list[Row]]:
    group: list[Row] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row.data)
        if len(group) >= GROUP_ROWS or size >= GROUP_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group
