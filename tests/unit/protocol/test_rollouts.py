"""Rollout files: what goes in comes out, one content has one digest, and no bytes from outside do any harm."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical import canonical_json
from protocol.errors import MalformedFile
from protocol.rollouts import (
    HEADER_KEY,
    SCHEMA,
    FileHeader,
    Rollout,
    content_hash,
    read_header,
    read_rollouts,
    write_rollouts,
)
from tests.unit.rollout_rows import HEADER, make_rollout

PLAIN: dict[str, Any] = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}


def read(data: bytes, max_rows: int = 64, max_tokens: int = 64) -> tuple[FileHeader, list[Rollout]]:
    return read_rollouts(data, max_rows=max_rows, max_tokens=max_tokens)


def as_table(rows: list[Rollout], **columns: Any) -> pa.Table:
    """The file's columns, some of them replaced by other arrays."""
    plain = {
        "input_tokens": [r.input_tokens for r in rows],
        "output_tokens": [r.output_tokens for r in rows],
        "task_rewards": [r.task_reward for r in rows],
        "proofs": [r.proofs for r in rows],
        "step": [r.step for r in rows],
        "problem_id": [r.problem_id for r in rows],
        "task_type": [r.task_type for r in rows],
        "target_lengths": [r.target_length for r in rows],
        "output_logprobs": [r.output_logprobs for r in rows],
        "finish_reason": [r.finish_reason for r in rows],
    }
    return pa.table({f.name: columns.get(f.name, pa.array(plain[f.name], type=f.type)) for f in SCHEMA})


def as_file(table: pa.Table, header: bytes | None = None, row_group_size: int | None = None, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema, **({"store_schema": False} | PLAIN | options)) as writer:
        writer.write_table(table, row_group_size)
        writer.add_key_value_metadata({HEADER_KEY: header or canonical_json(HEADER.model_dump(mode="json"))})
    return buffer.getvalue()


@given(st.integers(1, 20), st.integers(1, 64))
def test_what_is_written_is_read(num_rows: int, num_tokens: int) -> None:
    rollouts = [make_rollout(number, num_tokens) for number in range(num_rows)]
    header, found = read(write_rollouts(HEADER, rollouts))
    assert header == HEADER
    assert [r.row_bytes() for r in found] == [r.row_bytes() for r in rollouts]
    assert content_hash(header, found) == content_hash(HEADER, rollouts)


def test_one_content_has_one_digest_however_it_is_encoded() -> None:
    rollouts = [make_rollout(number) for number in range(4)]
    table = as_table(rollouts)
    files = [
        write_rollouts(HEADER, rollouts),
        as_file(table, compression="none"),
        as_file(table, row_group_size=2, write_statistics=True),
        as_file(table, data_page_size=1),
    ]
    assert len(set(files)) == len(files)
    assert {content_hash(*read(file)) for file in files} == {content_hash(HEADER, rollouts)}


CHANGES: dict[str, Any] = {
    "input_tokens": np.array([1, 2], dtype=np.int32),
    "output_tokens": np.array([1, 2], dtype=np.int32),
    "output_logprobs": np.array([-1, -2], dtype=np.float32),
    "task_reward": 0.5,
    "proofs": b"",
    "step": 4,
    "problem_id": "q",
    "task_type": "products",
    "target_length": 7,
    "finish_reason": "length",
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_field_counts(name: str) -> None:
    rollout = make_rollout()
    changed = replace(rollout, **{name: CHANGES[name]})
    assert content_hash(HEADER, [changed]) != content_hash(HEADER, [rollout])


def test_header_order_and_boundaries_count() -> None:
    a, b = make_rollout(0), make_rollout(1)
    other = HEADER.model_copy(update={"group_size": 3})
    digests = {content_hash(HEADER, [a, b]), content_hash(HEADER, [b, a]), content_hash(other, [a, b])}
    moved = replace(a, problem_id="p0s", task_type="ums")
    assert len(digests | {content_hash(HEADER, [moved, b])}) == 4


def refused(data: bytes, match: str | None = None) -> None:
    with pytest.raises(MalformedFile, match=match):
        read(data)


def test_a_wrong_schema_is_refused() -> None:
    rollouts = [make_rollout()]
    table = as_table(rollouts)
    refused(as_file(table.drop_columns(["step"])), "columns")
    refused(as_file(table.append_column("more", pa.array([1]))), "columns")
    refused(as_file(table.select(list(reversed(table.column_names)))), "columns")
    refused(as_file(as_table(rollouts, step=pa.array([3], type=pa.int64()))), "columns")
    refused(as_file(as_table(rollouts, proofs=pa.array(["x"]))), "columns")
    refused(
        as_file(as_table(rollouts, output_tokens=pa.array([[[1]]], type=pa.list_(pa.list_(pa.int32()))))), "columns"
    )


def test_empty_fields_are_refused() -> None:
    for field in SCHEMA:
        refused(as_file(as_table([make_rollout()], **{field.name: pa.array([None], type=field.type)})), "empty field")
    holes = pa.array([[1, None, 1, 1, 1]], type=pa.list_(pa.int32()))
    refused(as_file(as_table([make_rollout()], output_tokens=holes)), "null")


@pytest.mark.parametrize(
    "change",
    [
        {"output_tokens": np.zeros(0, dtype=np.int32), "output_logprobs": np.zeros(0, dtype=np.float32)},
        {"output_tokens": np.zeros(4, dtype=np.int32)},
        {"output_tokens": np.zeros(65, dtype=np.int32), "output_logprobs": np.zeros(65, dtype=np.float32)},
        {"input_tokens": np.zeros(0, dtype=np.int32)},
        {"output_logprobs": np.array([0, 0, np.nan, 0, 0], dtype=np.float32)},
        {"output_logprobs": np.array([0, 0, -np.inf, 0, 0], dtype=np.float32)},
        {"task_reward": float("inf")},
        {"finish_reason": "eos"},
        {"problem_id": "p" * 257},
    ],
)
def test_rows_out_of_bounds_are_refused(change: dict[str, Any]) -> None:
    refused(write_rollouts(HEADER, [make_rollout(), replace(make_rollout(1), **change)]), "row 1")


def test_the_number_of_rows_is_bounded() -> None:
    file = write_rollouts(HEADER, [make_rollout(number) for number in range(3)])
    assert len(read(file, max_rows=3)[1]) == 3
    with pytest.raises(MalformedFile, match="number of rows"):
        read(file, max_rows=2)
    refused(write_rollouts(HEADER, []))


@pytest.mark.parametrize("header", [b"{}", b"", b"[1]", b"\xff", b'{"task_id":"0x12"}'])
def test_a_wrong_header_is_refused(header: bytes) -> None:
    refused(as_file(as_table([make_rollout()]), header=header or b" "))


@pytest.mark.parametrize(
    "change",
    [
        {"group_size": 2**60},
        {"sampling": {"temperature": float("inf")}},
        {"sampling": {"temperature": 1e-9}},
        {"sampling": {"top_k": 10**400}},
    ],
)
def test_a_header_that_no_digest_can_be_taken_of_is_refused(change: dict[str, Any]) -> None:
    document = HEADER.model_dump(mode="json") | change
    refused(as_file(as_table([make_rollout()]), header=json.dumps(document).encode()), "can't be read")


def test_a_schema_that_is_nested_or_long_is_refused_before_arrow_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    nested: Any = pa.int32()
    for _ in range(70):
        nested = pa.struct([("x", nested)])
    file = as_file(pa.table({"a": pa.array([None], type=nested)}))
    monkeypatch.setattr(pq, "ParquetFile", None)
    refused(file, "schema is too large")


def test_other_metadata_are_refused_and_named() -> None:
    refused(as_file(as_table([make_rollout()]), store_schema=True), "'ARROW:schema' is extra")
    edited = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(write_rollouts(HEADER, [make_rollout()]))), edited, store_schema=False)
    refused(edited.getvalue(), "'proofpool' is missing")
    twice = write_rollouts(HEADER, [make_rollout()]).replace(b"proofpool", b"proofpoox")
    refused(twice, "'proofpool' is missing; 'proofpoox' is extra")


def test_a_header_is_read_without_the_rows() -> None:
    file = write_rollouts(HEADER, [make_rollout()])
    assert read_header(b"PAR1" + bytes(100) + file[104:]) == HEADER
    for damaged in (b"PAR1", file[:-1], file.replace(b'"group_size"', b'"group_sizo"')):
        with pytest.raises(MalformedFile):
            read_header(damaged)


@pytest.mark.parametrize(
    "options",
    [{"use_dictionary": True}, {"data_page_version": "2.0"}, {"column_encoding": {"step": "DELTA_BINARY_PACKED"}}],
)
def test_only_plain_pages_are_read(options: dict[str, Any]) -> None:
    refused(as_file(as_table([make_rollout()]), **options))


def bomb(name: str, **options: Any) -> bytes:
    """A small file with one row whose field unfolds to 2 MB."""
    size = 1 << 19
    field = SCHEMA.field(name)
    value: Any = np.zeros(size, dtype=np.int32) if pa.types.is_list(field.type) else b"\0" * 4 * size
    column = pa.array([value if name != "problem_id" else "a" * 4 * size], type=field.type)
    return as_file(as_table([make_rollout()], **{name: column}), **options)


@pytest.mark.parametrize("name", ["input_tokens", "output_tokens", "output_logprobs", "proofs", "problem_id"])
def test_a_small_file_cant_unfold_into_a_large_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [bomb(name), bomb(name, use_dictionary=True)]
    assert max(map(len, files)) < 20_000

    def decode(*_: Any, **__: Any) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(pq, "ParquetFile", decode)
    for file in files:
        refused(file)


def test_many_pages_or_a_long_footer_cost_little() -> None:
    refused(as_file(as_table([make_rollout()]), header=b"{" + b" " * (1 << 17)), "footer is too long")


def mutated(file: bytes, rng: random.Random) -> bytes:
    """The file with some bytes changed, put in or taken out, in the footer more often than elsewhere."""
    data = bytearray(file)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        place = rng.randrange(len(data)) if rng.random() < 0.4 else len(data) - 1 - rng.randrange(min(900, len(data)))
        action = rng.random()
        if action < 0.5:
            data[place] = rng.randrange(256)
        elif action < 0.8:
            data[place] ^= 1 << rng.randrange(8)
        elif action < 0.9:
            del data[place : place + rng.randrange(1, 9)]
        else:
            data[place:place] = rng.randbytes(rng.randrange(1, 9))
    return bytes(data)


def test_no_mutation_of_a_file_does_any_harm() -> None:
    """Each is read or refused: no other exception, and this process still runs afterwards."""
    rng = random.Random(2)
    files = [
        write_rollouts(HEADER, [make_rollout(n, t) for n in range(rows)]) for rows, t in ((1, 1), (4, 40), (40, 3))
    ]
    num_read = 0
    for _ in range(900):
        try:
            read(mutated(rng.choice(files), rng))
            num_read += 1
        except MalformedFile:
            pass
    assert 0 < num_read < 600


def test_truncated_files_are_refused() -> None:
    file = write_rollouts(HEADER, [make_rollout()])
    for size in range(0, len(file), 7):
        refused(file[:size])
