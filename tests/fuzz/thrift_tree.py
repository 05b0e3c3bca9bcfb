"""Thrift's compact encoding as a tree that can be changed and written again.

In: bytes that are well-formed. Out: `Node`s; `encode` writes any tree, sensible or not. Written apart from
`protocol/thrift.py`, which only reads, and refuses most of what is made here.
Source: the Thrift compact protocol specification.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


@dataclass
class Node:
    """A value: int, bytes, or for lists and structs its children (`number` is a field's id within a struct)."""

    kind: int
    value: Any = None
    children: list[Node] = field(default_factory=list)
    number: int = 0
    item_kind: int = STRUCT

    def find(self, *path: int) -> Node:
        """The node at a path of field ids, and of positions in lists."""
        node = self
        for step in path:
            found = node.children[step] if node.kind == LIST else next(c for c in node.children if c.number == step)
            node = found
        return node

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.walk()


def decode(data: bytes, position: int = 0) -> tuple[Node, int]:
    """The struct at `position`, and where it ends."""
    reader = _Reader(data, position)
    return reader.struct(), reader.position


def encode(struct: Node) -> bytes:
    """The bytes of a struct."""
    out, last = bytearray(), 0
    for child in struct.children:
        step = child.number - last
        if 0 < step < 16:
            out.append(step << 4 | child.kind & 15)
        else:
            out += bytes([child.kind & 15]) + _zigzag(child.number)
        out += _value(child)
        last = child.number
    return bytes(out) + b"\0"


def integer(number: int, value: int, kind: int = I32) -> Node:
    return Node(kind, value, number=number)


def binary(number: int, value: bytes) -> Node:
    return Node(BINARY, value, number=number)


def struct(number: int, *children: Node) -> Node:
    return Node(STRUCT, children=list(children), number=number)


def structs(number: int, *children: Node) -> Node:
    return Node(LIST, children=list(children), number=number)


def _value(node: Node) -> bytes:
    if node.kind in (I16, I32, I64):
        return _zigzag(node.value or 0)
    if node.kind == BYTE:
        return bytes([(node.value or 0) & 255])
    if node.kind == DOUBLE:
        return (node.value if isinstance(node.value, bytes) else b"").ljust(8, b"\0")[:8]
    if node.kind == BINARY:
        text = node.value if isinstance(node.value, bytes) else b""
        return _varint(len(text)) + text
    if node.kind in (LIST, SET):
        return _list(node)
    return encode(node) if node.kind == STRUCT else b""


def _list(node: Node) -> bytes:
    size = len(node.children) if node.value is None else node.value
    head = bytes([size << 4 | node.item_kind]) if size < 15 else bytes([0xF0 | node.item_kind]) + _varint(size)
    return head + b"".join(bytes([c.kind]) if node.item_kind in (TRUE, FALSE) else _value(c) for c in node.children)


def _varint(value: int) -> bytes:
    out = bytearray()
    value %= 2**64
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def _zigzag(value: int) -> bytes:
    return _varint(2 * value if value >= 0 else -2 * value - 1)


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self.data, self.position = data, position

    def byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed(self) -> int:
        raw = self.varint()
        return (raw >> 1) ^ -(raw & 1)

    def take(self, size: int) -> bytes:
        self.position += size
        return self.data[self.position - size : self.position]

    def struct(self) -> Node:
        node, number = Node(STRUCT), 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.signed()
            child = self.value(head & 15)
            child.number = number
            node.children.append(child)
        return node

    def value(self, kind: int) -> Node:
        if kind in (I16, I32, I64):
            return Node(kind, self.signed())
        if kind == BYTE:
            return Node(kind, self.byte())
        if kind == DOUBLE:
            return Node(kind, self.take(8))
        if kind == BINARY:
            return Node(kind, self.take(self.varint()))
        if kind in (LIST, SET):
            head = self.byte()
            size = head >> 4 if head >> 4 < 15 else self.varint()
            items = [Node(self.byte()) if head & 15 in (1, 2) else self.value(head & 15) for _ in range(size)]
            return Node(kind, children=items, item_kind=head & 15)
        return self.struct() if kind == STRUCT else Node(kind)
