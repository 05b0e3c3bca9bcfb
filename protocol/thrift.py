"""Reads Thrift's compact encoding, as far as parquet uses it, from bytes that nobody vouches for.

In: bytes and a position. Out: a `Struct` of typed fields and the position after it; or MalformedFile.
Stricter than other readers, so that no two of them can see different things: field ids ascend, none is
repeated, integers fit their width, and who asks for a field names its type.
Source: the Thrift compact protocol specification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol.errors import MalformedFile

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
MAX_DEPTH = 12
MAX_VARINT_BYTES = 10
_BITS = {I16: 16, I32: 32, I64: 64}


@dataclass(frozen=True)
class Field:
    kind: int
    value: Any


class Struct(dict[int, Field]):
    """Fields by id. Example: `footer.take(3, I64)` is the number of rows."""

    def find(self, number: int, kind: int) -> Any:
        """The field's value, or None where there is none. Raises MalformedFile for another type."""
        field = self.get(number)
        if field is not None and field.kind != kind:
            raise MalformedFile("a parquet file's metadata has a field of a wrong type", f"field {number}")
        return None if field is None else field.value

    def take(self, number: int, kind: int) -> Any:
        """The field's value. Raises MalformedFile where it is missing."""
        value = self.find(number, kind)
        if value is None:
            raise MalformedFile("a parquet file's metadata lacks a field", f"field {number}")
        return value

    def structs(self, number: int) -> list[Struct]:
        """The structs in a list field, none where it is missing. Raises MalformedFile for other items."""
        items: list[Any] = self.find(number, LIST) or []
        if not all(isinstance(item, Struct) for item in items):
            raise MalformedFile("a parquet file's metadata has a list of something else", f"field {number}")
        return items


def read_struct(data: bytes, position: int, max_bytes: int) -> tuple[Struct, int]:
    """The struct that starts at `position`, and where it ends. Raises MalformedFile.

    It isn't read further than `max_bytes`: a list of a byte an item takes eight times its size in memory.
    """
    reader = _Reader(data[position : position + max_bytes])
    try:
        return reader.struct(0), position + reader.position
    except IndexError as error:
        raise MalformedFile(
            "a parquet file's metadata ends in the middle, or is too long",
            f"at byte {position + reader.position}, after {reader.position} of at most {max_bytes}",
        ) from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def byte(self) -> int:
        value = self.data[self.position]
        self.position += 1
        return value

    def varint(self) -> int:
        value = 0
        for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedFile("a parquet file's metadata has an endless number", f"at byte {self.position}")

    def integer(self, kind: int) -> int:
        raw = self.varint()
        value = (raw >> 1) ^ -(raw & 1)
        if not -(2 ** (_BITS[kind] - 1)) <= value < 2 ** (_BITS[kind] - 1):
            raise MalformedFile("a parquet file's metadata has a number past its width", f"{value}")
        return value

    def binary(self) -> bytes:
        size = self.varint()
        if size > len(self.data) - self.position:
            raise MalformedFile("a parquet file's metadata has a text past its end", f"{size} bytes")
        start, self.position = self.position, self.position + size
        return self.data[start : self.position]

    def items(self, depth: int) -> list[Any]:
        _check_depth(depth)
        head = self.byte()
        size, kind = head >> 4, head & 0x0F
        if size == 15:
            size = self.varint()
        if size > len(self.data) - self.position:  # each item takes a byte at least
            raise MalformedFile("a parquet file's metadata has a list past its end", f"{size} items")
        return [self.byte() if kind in (TRUE, FALSE) else self.value(kind, depth) for _ in range(size)]

    def struct(self, depth: int) -> Struct:
        _check_depth(depth)
        fields, number = Struct(), 0
        while (head := self.byte()) != 0:
            step, kind = head >> 4, head & 0x0F
            following = number + step if step else self.integer(I16)
            if following <= number:
                raise MalformedFile("a parquet file's metadata repeats a field", f"field {following}")
            number = following
            fields[number] = Field(kind, self.value(kind, depth))
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == BYTE:
            return self.byte()
        if kind in _BITS:
            return self.integer(kind)
        if kind == DOUBLE:
            self.position += 8
            return None
        if kind == BINARY:
            return self.binary()
        if kind in (LIST, SET):
            return self.items(depth + 1)
        if kind == STRUCT:
            return self.struct(depth + 1)
        raise MalformedFile("a parquet file's metadata has a field that parquet doesn't use", f"type {kind}")


def _check_depth(depth: int) -> None:
    """Structs and lists both count: each level is a level of this reader's own stack."""
    if depth > MAX_DEPTH:
        raise MalformedFile("a parquet file's metadata is nested too deeply", f"past {MAX_DEPTH}")
