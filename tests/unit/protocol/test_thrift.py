"""The reader of parquet's metadata: what the specification allows once, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import MalformedFile
from protocol.thrift import BINARY, I32, I64, LIST, read_struct

# field 1: i32 = 5; field 2: i64 = -1; field 20 (long form): binary "ab"; stop
EXAMPLE = bytes([0x15, 10, 0x16, 1, 0x08, 40, 2]) + b"ab" + bytes([0])


def test_fields_have_ids_types_and_values() -> None:
    struct, end = read_struct(b"??" + EXAMPLE, 2, 100)
    assert (struct.take(1, I32), struct.take(2, I64), struct.take(20, BINARY)) == (5, -1, b"ab")
    assert end == 2 + len(EXAMPLE)
    assert struct.find(3, I32) is None


def test_a_field_of_another_type_isnt_taken_for_missing() -> None:
    struct, _ = read_struct(EXAMPLE, 0, 100)
    with pytest.raises(MalformedFile, match="wrong type"):
        struct.find(1, I64)
    with pytest.raises(MalformedFile, match="lacks"):
        struct.take(3, I64)


@pytest.mark.parametrize(
    "data",
    [
        bytes([0x15, 10, 0x05, 2, 2, 0]),  # field 1 again
        bytes([0x15, 0x80, 0x80, 0x80, 0x80, 0x20, 0]),  # 33 bits in an i32
        bytes([0x16]) + b"\xff" * 12,  # an endless number
        bytes([0x18, 100]) + b"short",
        bytes([0x19, 0xF5, 0xFF, 0xFF, 0x7F]),  # a list of two million items
        bytes([0x1C] * 40),  # structs nested too deeply
        bytes([0x19] * 900),  # lists nested too deeply
        bytes([0x1B, 0]),  # a map
        bytes([0x1E]),  # no such type
        b"",
    ],
)
def test_what_no_two_readers_would_agree_on_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedFile):
        read_struct(data, 0, 1000)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        _, end = read_struct(data, 0, 1000)
    except MalformedFile:
        return
    assert 0 < end <= len(data)


def test_no_struct_is_read_past_its_bound() -> None:
    """A list of a byte an item is eight times as large in memory: 100 MB of it would be most of a gigabyte."""
    flags = bytes([0x19, 0xF1, 0xC8, 0x01]) + bytes([1]) * 200 + bytes([0])  # field 1: 200 booleans
    assert len(read_struct(flags, 0, len(flags))[0].take(1, LIST)) == 200
    for max_bytes in (100, len(flags) - 1):
        with pytest.raises(MalformedFile):
            read_struct(flags, 0, max_bytes)
