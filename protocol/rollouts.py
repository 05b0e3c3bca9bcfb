"""The rollout file: one row a rollout, groups contiguous, and the digest that names its content.

In: `Rollout` rows and a `FileHeader`. Out: parquet bytes (zstd, no dictionaries), and back, strictly.
`content_hash` is over canonical row bytes, so the same content has one id however it is encoded.
Columns: design of the file in docs/protocol.md; only what can't be derived is in it.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from protocol.canonical import canonical_json, hex0x
from protocol.errors import MalformedFile, MalformedRow, NotCanonical
from protocol.parquet import check_pages, read_metadata
from protocol.rules import SamplingRules
from protocol.wire import PROTOCOL_VERSION, Hash32, SchemaVersion

Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]

FINISH_REASONS = ("stop", "length")
HEADER_KEY = b"proofpool"
MAX_TEXT_BYTES = 256
ROWS_PER_READ = 16
BYTES_PER_TOKEN = 24  # token ids, log-probs, and 258 proof bytes for every 32 tokens
ROW_OVERHEAD = 2048
MAX_DECODED_BYTES = 1 << 29
"""What any file may unfold to, whatever the rules: a reader holds it about twice."""

_ENCODING = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "store_schema": False}
"""Plain pages: nothing in the file repeats itself when it is decoded (`protocol/parquet.py`)."""

SCHEMA = pa.schema(
    [
        ("input_tokens", pa.list_(pa.int32())),
        ("output_tokens", pa.list_(pa.int32())),
        ("task_rewards", pa.float32()),
        ("proofs", pa.binary()),
        ("step", pa.int32()),
        ("problem_id", pa.string()),
        ("task_type", pa.string()),
        ("target_lengths", pa.int32()),
        ("output_logprobs", pa.list_(pa.float32())),
        ("finish_reason", pa.string()),
    ]
)


class FileHeader(BaseModel):
    """What the file says of itself, in parquet metadata under the key `proofpool`; part of `content_hash`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    schema_version: SchemaVersion = PROTOCOL_VERSION
    task_id: Hash32
    group_size: int
    sampling: SamplingRules


@dataclass(frozen=True, eq=False)
class Rollout:
    """One completion with its proof and claims.

    input_tokens int32 [P]; output_tokens int32 [T], T ≥ 1; output_logprobs float32 [T] (nats, after
    temperature, before top-k/top-p); task_reward float32; proofs: ⌈T/32⌉ × 258 bytes; step: the policy
    version; target_length −1 for none; finish_reason "stop" (ends in EOS) or "length".
    """

    input_tokens: Int32Array
    output_tokens: Int32Array
    output_logprobs: Float32Array
    task_reward: float
    proofs: bytes
    step: int
    problem_id: str
    task_type: str
    target_length: int
    finish_reason: str

    @property
    def num_units(self) -> int:
        return len(self.output_tokens)

    def row_bytes(self) -> bytes:
        """Length-prefixed little-endian fields in the order of the schema: what is hashed."""
        parts = [
            self.input_tokens.astype("<i4").tobytes(),
            self.output_tokens.astype("<i4").tobytes(),
            struct.pack("<f", self.task_reward),
            self.proofs,
            struct.pack("<i", self.step),
            self.problem_id.encode(),
            self.task_type.encode(),
            struct.pack("<i", self.target_length),
            self.output_logprobs.astype("<f4").tobytes(),
            self.finish_reason.encode(),
        ]
        return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def content_hash(header: FileHeader, rollouts: Sequence[Rollout]) -> str:
    """SHA-256 over the header's canonical JSON and the SHA-256 of each row, in order."""
    digest = hashlib.sha256(b"proofpool/rollouts/v1\n")
    head = canonical_json(header.model_dump(mode="json"))
    digest.update(struct.pack("<II", len(head), len(rollouts)) + head)
    for rollout in rollouts:
        digest.update(hashlib.sha256(rollout.row_bytes()).digest())
    return hex0x(digest.digest())


def write_rollouts(header: FileHeader, rollouts: Sequence[Rollout]) -> bytes:
    """Parquet bytes of the rows."""
    columns = [
        [r.input_tokens for r in rollouts],
        [r.output_tokens for r in rollouts],
        [r.task_reward for r in rollouts],
        [r.proofs for r in rollouts],
        [r.step for r in rollouts],
        [r.problem_id for r in rollouts],
        [r.task_type for r in rollouts],
        [r.target_length for r in rollouts],
        [r.output_logprobs for r in rollouts],
        [r.finish_reason for r in rollouts],
    ]
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, SCHEMA, **_ENCODING) as writer:
        writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA))
        writer.add_key_value_metadata({HEADER_KEY: canonical_json(header.model_dump(mode="json"))})
    return buffer.getvalue()


def read_rollouts(data: bytes, *, max_rows: int, max_tokens: int) -> tuple[FileHeader, list[Rollout]]:
    """Header and rows of a file from outside.

    Raises MalformedFile for whatever isn't exactly the schema, MalformedRow where that is one row's fault.

    `max_rows` bounds rows, `max_tokens` bounds each row's prompt and completion.
    """
    max_bytes = min(MAX_DECODED_BYTES, max_rows * (max_tokens * BYTES_PER_TOKEN + ROW_OVERHEAD))
    max_values = max_rows * (3 * max_tokens + len(SCHEMA))
    check_pages(data, metadata_key=HEADER_KEY, max_values=max_values, max_bytes=max_bytes)
    try:
        file = pq.ParquetFile(io.BytesIO(data), thrift_string_size_limit=1 << 20, thrift_container_size_limit=1 << 16)
        header = FileHeader.model_validate_json((file.metadata.metadata or {}).get(HEADER_KEY, b""))
        canonical_json(header.model_dump(mode="json"))
        _check_shape(file, max_rows)
        rollouts = [rollout for batch in _batches(file, limit=max_bytes) for rollout in _rollouts(batch)]
    except (pa.ArrowException, OSError, ValueError, NotCanonical) as error:
        raise MalformedFile("a rollout file can't be read", f"{error}".partition("\n")[0][:200]) from error
    if not 0 < len(rollouts) <= max_rows:
        raise MalformedFile("a rollout file has another number of rows than it says", f"{len(rollouts)}")
    for index, rollout in enumerate(rollouts):
        _check_row(index, rollout, max_tokens)
    return header, rollouts


def read_header(data: bytes) -> FileHeader:
    """What a file says of itself; its rows aren't looked at. Raises MalformedFile."""
    try:
        header = FileHeader.model_validate_json(read_metadata(data, HEADER_KEY))
        canonical_json(header.model_dump(mode="json"))
    except (ValueError, NotCanonical) as error:
        raise MalformedFile("a rollout file's header can't be read", f"{error}".partition("\n")[0][:200]) from error
    return header


def _check_shape(file: pq.ParquetFile, max_rows: int) -> None:
    """Bound what decoding may cost before anything is decoded."""
    schema = file.schema_arrow.remove_metadata()
    plain = pa.schema([pa.field(f.name, f.type) for f in schema])
    if [(f.name, str(f.type)) for f in plain] != [(f.name, str(f.type)) for f in _read_schema()]:
        raise MalformedFile("a rollout file has other columns than the schema", str(plain.names)[:200])
    if not 0 < file.metadata.num_rows <= max_rows:
        raise MalformedFile(
            "a rollout file has a wrong number of rows", f"{file.metadata.num_rows}, at most {max_rows}"
        )


def _batches(file: pq.ParquetFile, limit: int) -> Iterator[pa.RecordBatch]:
    """The rows, decoded a few at a time, so that a small file can't unfold into a large one unnoticed.

    `check_pages` has bounded what the pages hold; this bounds what Arrow makes of it. Column metadata is left alone
    on purpose: reading its statistics from a hostile file ends the process.
    """
    num_bytes = 0
    for batch in file.iter_batches(batch_size=ROWS_PER_READ, use_threads=False):
        num_bytes += batch.nbytes
        if num_bytes > limit:
            raise MalformedFile("a rollout file unfolds into too many bytes", f"over {limit}")
        yield batch


def _read_schema() -> pa.Schema:
    """The schema as parquet hands it back: list items are named `element`."""
    return pa.schema(
        [
            pa.field(f.name, pa.list_(pa.field("element", f.type.value_type))) if pa.types.is_list(f.type) else f
            for f in SCHEMA
        ]
    )


def _rollouts(batch: pa.RecordBatch) -> Iterator[Rollout]:
    """The batch's rows, with arrays of their own: nothing keeps the batch in memory."""
    columns = {field.name: batch.column(index) for index, field in enumerate(SCHEMA)}
    if empty := [name for name, column in columns.items() if column.null_count]:
        raise MalformedFile("a rollout has an empty field", ", ".join(empty))
    for row in range(batch.num_rows):
        yield Rollout(
            input_tokens=_numbers(columns["input_tokens"], row),
            output_tokens=_numbers(columns["output_tokens"], row),
            output_logprobs=_numbers(columns["output_logprobs"], row),
            task_reward=columns["task_rewards"][row].as_py(),
            proofs=columns["proofs"][row].as_py(),
            step=columns["step"][row].as_py(),
            problem_id=columns["problem_id"][row].as_py(),
            task_type=columns["task_type"][row].as_py(),
            target_length=columns["target_lengths"][row].as_py(),
            finish_reason=columns["finish_reason"][row].as_py(),
        )


def _numbers(column: pa.ListArray, row: int) -> npt.NDArray[Any]:
    values = column[row].values
    if values.null_count:
        raise MalformedFile("a rollout has a null inside a list", f"{values.null_count} of {len(values)}")
    return np.array(values.to_numpy())


def _check_row(index: int, rollout: Rollout, max_tokens: int) -> None:
    lengths = (len(rollout.input_tokens), len(rollout.output_tokens), len(rollout.output_logprobs))
    if not all(0 < n <= max_tokens for n in lengths) or lengths[1] != lengths[2]:
        raise MalformedRow(index, "has wrong lengths", f"prompt, completion, log-probs = {lengths}")
    if rollout.finish_reason not in FINISH_REASONS:
        raise MalformedRow(index, "has an unknown finish reason", rollout.finish_reason[:40])
    if not np.isfinite(rollout.output_logprobs).all() or not np.isfinite(rollout.task_reward):
        raise MalformedRow(index, "has a number that isn't finite")
    if max(len(rollout.problem_id), len(rollout.task_type)) > MAX_TEXT_BYTES:
        raise MalformedRow(index, f"has a text over {MAX_TEXT_BYTES} characters")
