"""An export has every row that was asked for, the same in each format, or it isn't there."""

from __future__ import annotations

import csv
import io
import json
import signal
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from protocol.api import LogEntry
from protocol.canonical import canonical_json, hex0x, sha256
from protocol.chain.pool import LogHead
from protocol.cli import run
from protocol.errors import UsageError, VerificationFailed
from protocol.merkle.history import Frontier, event_leaf_hash_of
from protocol.wire import ZERO_HASH
from verifier.audit.log.checked_log import NOT_ANCHORED, CheckedLog
from verifier.audit.reports import row_files
from verifier.audit.reports.export import ExportSummary, Wanted, check_types, export
from verifier.audit.reports.row_files import Format, write_rows
from verifier.audit.reports.rows import COLUMNS, NUMBERS, Row

NODE, OTHER, PROVIDER = "0x" + "aa" * 20, "0x" + "ab" * 20, "0x" + "bb" * 20
FIRST, SECOND = "0x" + "01" * 32, "0x" + "02" * 32
ODD = 'a "quoted", =cmd() \n line; ☂\u2028\x00'


@pytest.fixture
def told(log: Any, chain: Any) -> CheckedLog:
    """Three epochs of a log with leaves of every kind."""
    log.append("task.leased", FIRST, node=NODE, provider=PROVIDER, deadline=9)
    log.append("submission.received", FIRST, node=NODE, provider=PROVIDER, num_units=48, note=ODD)
    log.append("epoch.closed", epoch=0)
    log.anchor(chain)
    big = str(2**127)
    log.append("submission.accepted", FIRST, node=NODE, provider=PROVIDER, num_units=48, amount_wei=big, reason=None)
    log.append("submission.rejected", SECOND, node=OTHER, provider=PROVIDER, num_units=0, amount_wei="0", reason="=1+1")
    log.append("epoch.closed", epoch=1)
    log.anchor(chain)
    arguments = {"node": NODE, "provider": PROVIDER, "reason": "67", "amount": "5"}
    log.append("chain.Accused", FIRST, block=7, arguments=arguments)
    log.append("verdict.revealed", FIRST, validator=OTHER, seat=3, outcome=2, reason="wrong_prompts")
    log.append("epoch.closed", epoch=2)
    log.anchor(chain)
    return CheckedLog(None, chain.domain, log.read, chain.heads(0), "anchored: a table", chain)  # type: ignore[arg-type]


def read(path: Path, row_format: Format) -> list[Row]:
    """As any reader would."""
    if row_format is Format.PARQUET:
        return [Row(**row) for row in pq.read_table(path).to_pylist()]
    if row_format is Format.JSONL:
        return [Row(**json.loads(line)) for line in path.read_bytes().split(b"\n")[:-1]]
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [Row(**{name: _value(name, text) for name, text in row.items()}) for row in rows]


def _value(name: str, text: str) -> Any:
    if not text:
        return None
    return int(text) if name in NUMBERS else text


def exported(log: CheckedLog, folder: Path, **wanted: Any) -> list[Row]:
    path = folder / "log.jsonl"
    export(log, Wanted(**wanted), path, Format.JSONL)
    return read(path, Format.JSONL)


def test_a_type_that_no_leaf_has_is_a_usage_error() -> None:
    check_types(["task.*", "chain.Slashed", "chain.*", "epoch.closed", "*"])
    for wrong in ("task.lease", "chain.Slash", "tasks.*", ""):
        with pytest.raises(UsageError, match="no leaf is of that type") as found:
            check_types([wrong])
        assert "submission.accepted" in found.value.todo and "chain.EpochCommitted" in found.value.todo


@pytest.mark.parametrize("row_format", Format)
def test_every_format_has_the_same_rows(told: CheckedLog, log: Any, tmp_path: Path, row_format: Format) -> None:
    path = tmp_path / "new" / f"log.{row_format}"
    summary = export(told, Wanted(), path, row_format)
    rows = read(path, row_format)
    assert rows == exported(told, tmp_path)
    assert [row.index for row in rows] == list(range(9)) and [row.epoch for row in rows] == [0] * 3 + [1] * 3 + [2] * 3
    for row, entry in zip(rows, log.entries, strict=True):
        assert json.loads(row.data) == entry.event["data"]
        assert (row.type, row.subject, row.leaf_hash) == (entry.event["type"], entry.subject, entry.leaf_hash)
    assert (rows[3].amount_wei, rows[3].units, rows[3].reason) == (str(2**127), 48, None)
    assert rows[4].reason is None and '"=1+1"' in rows[4].data, "what is no reason is in the data alone"
    assert (rows[6].reason, rows[6].node, rows[6].block, rows[6].amount_wei) == ("wrong_prompts", NODE, 7, "5")
    assert (rows[7].validator, rows[7].seat, rows[7].reason) == (OTHER, 3, "wrong_prompts")
    assert summary.sha256 == hex0x(sha256(path.read_bytes())) and summary.num_bytes == path.stat().st_size
    assert (summary.num_rows, summary.num_leaves, summary.anchored) == (9, 9, True)


@pytest.mark.parametrize("row_format", Format)
def test_the_same_log_makes_the_same_bytes_however_it_is_paged(
    told: CheckedLog, log: Any, tmp_path: Path, row_format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    export(told, Wanted(), one, row_format)
    paged = CheckedLog(told.pool, told.domain, lambda start, _: log.read(start, 1), told.heads, "", told.chain)
    export(paged, Wanted(), two, row_format)
    assert one.read_bytes() == two.read_bytes()
    monkeypatch.setattr(row_files, "GROUP_ROWS", 2)
    export(told, Wanted(), two, row_format)
    assert read(two, row_format) == read(one, row_format)


@pytest.mark.parametrize(
    ("wanted", "indexes"),
    [
        ({"types": ("epoch.closed",)}, [2, 5, 8]),
        ({"types": ("submission.*", "chain.Accused")}, [1, 3, 4, 6]),
        ({"types": ("submission",)}, []),
        ({"subjects": (SECOND,)}, [4]),
        ({"subjects": (SECOND, ZERO_HASH)}, [2, 4, 5, 8]),
        ({"node": NODE}, [0, 1, 3, 6]),
        ({"provider": PROVIDER, "node": OTHER}, [4]),
        ({"since_epoch": 1}, [3, 4, 5, 6, 7, 8]),
        ({"since_epoch": 1, "until_epoch": 1, "subjects": (FIRST,)}, [3]),
        ({"since_epoch": 3}, []),
    ],
)
def test_filters_let_through_what_they_name_in_the_logs_order(
    told: CheckedLog, tmp_path: Path, wanted: dict[str, Any], indexes: list[int]
) -> None:
    assert [row.index for row in exported(told, tmp_path, **wanted)] == indexes


def test_up_to_an_epoch_the_log_is_read_to_its_head(told: CheckedLog, tmp_path: Path) -> None:
    summary = export(told, Wanted(until_epoch=1), tmp_path / "log.csv", Format.CSV)
    assert summary.head is not None and (summary.head.epoch, summary.num_leaves, summary.num_rows) == (1, 6, 6)
    forgotten = CheckedLog(told.pool, told.domain, told.read_entries, told.heads[2:], "", told.chain)
    summary = export(forgotten, Wanted(until_epoch=0), tmp_path / "log.csv", Format.CSV)
    assert summary.head is not None and (summary.head.epoch, summary.num_leaves, summary.num_rows) == (2, 9, 3)


def test_without_a_chain_the_summary_says_so(told: CheckedLog, tmp_path: Path) -> None:
    alone = CheckedLog(told.pool, told.domain, told.read_entries, told.heads, NOT_ANCHORED)
    summary: ExportSummary = export(alone, Wanted(node=NODE), tmp_path / "log.csv", Format.CSV)
    assert not summary.anchored and "not anchored" in summary.anchor and summary.filters == {"node": NODE}


def test_a_log_without_epochs_has_no_rows_and_no_head(told: CheckedLog, tmp_path: Path) -> None:
    empty = CheckedLog(told.pool, told.domain, told.read_entries, [], "", told.chain)
    for row_format in Format:
        path = tmp_path / f"log.{row_format}"
        summary = export(empty, Wanted(), path, row_format)
        assert (summary.num_rows, summary.head) == (0, None) and read(path, row_format) == []


def changed(entries: Sequence[LogEntry], index: int, **data: Any) -> list[LogEntry]:
    """One event says something else, and hashes to what it says."""
    from tests.unit.verifier.conftest import LogTable

    forged = LogTable()
    for entry in entries:
        said = data if entry.index == index else entry.event["data"]
        forged.append(entry.event["type"], entry.subject, **said)
    return forged.entries


@pytest.mark.parametrize("row_format", Format)
@pytest.mark.parametrize("index", [0, 4, 8])
def test_a_tampered_log_leaves_no_file_and_no_old_one_is_touched(
    told: CheckedLog, log: Any, tmp_path: Path, row_format: Format, index: int
) -> None:
    honest, path = log.entries, tmp_path / "log"
    log.entries = changed(honest, index, reason="other")
    for before in (None, b"old"):
        with pytest.raises(VerificationFailed, match="anchors"):
            export(told, Wanted(types=("task.leased",)), path, row_format)
        assert [file.name for file in tmp_path.iterdir()] == ([] if before is None else ["log"])
        path.write_bytes(b"old")
    assert path.read_bytes() == b"old"
    log.entries = honest
    assert export(told, Wanted(), path, row_format).num_rows == 9 and path.read_bytes() != b"old"


def test_a_log_that_ends_early_leaves_no_file(told: CheckedLog, log: Any, tmp_path: Path) -> None:
    log.entries = log.entries[:7]
    with pytest.raises(VerificationFailed, match="holds back"):
        export(told, Wanted(), tmp_path / "log.csv", Format.CSV)
    assert list(tmp_path.iterdir()) == []


def test_a_leaf_that_holds_no_event_leaves_no_file(log: Any, chain: Any, tmp_path: Path) -> None:
    log.append("=HYPERLINK()", FIRST)
    log.anchor(chain)
    odd = CheckedLog(None, chain.domain, log.read, chain.heads(0), "", chain)  # type: ignore[arg-type]
    with pytest.raises(VerificationFailed, match="holds no event"):
        export(odd, Wanted(), tmp_path / "log.csv", Format.CSV)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("row_format", Format)
@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
def test_what_is_interrupted_leaves_no_file(
    told: CheckedLog, log: Any, tmp_path: Path, row_format: Format, interruption: type[BaseException]
) -> None:
    def broken(start: int, limit: int) -> list[LogEntry]:
        if start >= 4:
            raise interruption
        return log.read(start, min(limit, 2))  # type: ignore[no-any-return]

    cut = CheckedLog(told.pool, told.domain, broken, told.heads, "", told.chain)
    with pytest.raises(interruption):
        export(cut, Wanted(), tmp_path / "log", row_format)
    assert list(tmp_path.iterdir()) == []


def test_what_is_terminated_leaves_no_file(told: CheckedLog, log: Any, tmp_path: Path) -> None:
    def terminated(start: int, limit: int) -> list[LogEntry]:
        if start >= 4:
            signal.raise_signal(signal.SIGTERM)
        return log.read(start, min(limit, 2))  # type: ignore[no-any-return]

    before = signal.getsignal(signal.SIGTERM)
    cut = CheckedLog(told.pool, told.domain, terminated, told.heads, "", told.chain)
    with pytest.raises(KeyboardInterrupt):
        export(cut, Wanted(), tmp_path / "log", Format.CSV)
    assert list(tmp_path.iterdir()) == [] and signal.getsignal(signal.SIGTERM) is before


@contextmanager
def most_memory(limit: int) -> Iterator[None]:
    """The block never has more than `limit` bytes at once."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak} bytes"


class Nowhere(io.BytesIO):
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        return len(data)


@pytest.mark.parametrize(
    ("row_format", "num_rows"), [(Format.CSV, 100_000), (Format.JSONL, 20_000), (Format.PARQUET, 20_000)]
)
def test_rows_are_written_in_memory_that_does_not_grow(row_format: Format, num_rows: int) -> None:
    """Rows of half a kilobyte: kept, they would be 10 or 50 MB; a group of them with its columns is two or three."""

    def rows(count: int) -> Iterator[Row]:
        facts = (NODE, PROVIDER, None, None, None, 48, "144", None)
        for index in range(count):
            data = f'{{"index":{index},"x":"{"x" * 400}"}}'
            yield Row(index, index // 100, 9, "task.leased", FIRST, *facts, SECOND, data)

    write_rows(rows(10), Nowhere(), row_format)  # what is imported then is no matter
    with most_memory(5 << 20):
        assert write_rows(rows(num_rows), Nowhere(), row_format) == num_rows


def test_a_log_is_exported_in_memory_that_does_not_grow(chain: Any, tmp_path: Path) -> None:
    """From the coordinator's pages, hashed, to the file: 4,000 leaves, which would be over 10 MB, in pages of 50."""
    num_leaves, frontier = 4_000, Frontier()
    for index in range(num_leaves):
        frontier.append(leaf(index).leaf_hash)
    heads = [LogHead(0, num_leaves, frontier.root)]

    def pages(start: int, limit: int) -> list[LogEntry]:
        return [leaf(index) for index in range(start, start + min(limit, 50))]

    long = CheckedLog(None, chain.domain, pages, heads, "", chain)  # type: ignore[arg-type]
    with most_memory(3 << 20):
        assert export(long, Wanted(), tmp_path / "log.csv", Format.CSV).num_rows == num_leaves


def leaf(index: int) -> LogEntry:
    data = {"node": NODE, "x": "x" * 1000}
    event = {"schema_version": 1, "index": index, "type": "task.leased", "subject": FIRST, "time": 9, "data": data}
    event_hash = hex0x(sha256(canonical_json(event)))
    leaf_hash = event_leaf_hash_of(FIRST, event_hash)
    return LogEntry(index=index, subject=FIRST, event_hash=event_hash, leaf_hash=leaf_hash, event=event)


def test_every_column_is_documented_in_its_order() -> None:
    page = (Path(__file__).resolve().parents[5] / "docs" / "audit.md").read_text()
    table = page.partition("## Export the history")[2].partition("\n## ")[0]
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == list(COLUMNS)


def test_a_row_has_a_value_for_each_column() -> None:
    row = Row(1, 2, 3, "t", FIRST, None, None, None, None, None, None, None, None, SECOND, "{}")
    assert tuple(row.values()) == astuple(row) and len(COLUMNS) == len(astuple(row))


def test_a_call_that_can_give_no_rows_or_no_file_asks_nobody(tmp_path: Path) -> None:
    nowhere = ["--format", "csv", "--coordinator", "http://127.0.0.1:1"]
    assert run(["audit", "export", "--out", str(tmp_path), *nowhere]) == 2
    out = ["--out", str(tmp_path / "log.csv"), *nowhere]
    assert run(["audit", "export", *out, "--since-epoch", "9", "--until-epoch", "3"]) == 2
    assert run(["audit", "export", *out, "--since-epoch", "3", "--until-epoch", "3"]) == 5
