"""The append-only log of a pool: RFC 9162 SHA-256 trees over any store of nodes.

In: leaf hashes in order (`event_leaf_hash`). Out: roots, inclusion and consistency proofs, and their
verification; the Ledger contract checks the same proofs. Hashes are 0x-hex.

Only complete subtrees are stored, each at (level, position): level 0 holds leaves, (level, position)
covers leaves position·2^level up to (position+1)·2^level. They never change once written, so a store only inserts:
`Frontier.append` returns what to insert, `NodeReader` reads it back. A root or proof of any earlier size
takes one read of O(log n) nodes.
Source: RFC 9162 §2.1. Vectors: tests/unit/protocol/merkle/test_history.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from protocol.canonical import from_hex0x, hex0x, is_hash32, sha256
from protocol.errors import UsageError

EMPTY_ROOT = hex0x(sha256(b""))
MAX_PROOF_HASHES = 65
"""A tree of uint64 size is at most 64 levels high; a consistency proof has one hash more."""


class NodeAddress(NamedTuple):
    """Where a complete subtree's hash is kept."""

    level: int
    position: int


class Node(NamedTuple):
    """A complete subtree and its hash: a row of the store."""

    level: int
    position: int
    node_hash: str


class NodeReader(Protocol):
    """A store of complete subtrees."""

    def read(self, addresses: Sequence[NodeAddress]) -> Sequence[str]:
        """Hashes in the order of `addresses`. Raises where one is missing."""
        ...


class _Range(NamedTuple):
    """Leaves [start, end) that form one subtree of the RFC's recursion; its start is aligned to its height."""

    start: int
    end: int


def leaf_hash(data: bytes) -> str:
    """SHA-256(0x00 ‖ data)."""
    return hex0x(hashlib.sha256(b"\x00" + data).digest())


def event_leaf_hash(subject_id: str, event: bytes) -> str:
    """The leaf of a log event: SHA-256(0x00 ‖ subject id ‖ SHA-256(canonical event bytes)).

    The subject (a submission id, or zero) stands outside the event's hash, so that a contract can tie a leaf
    to a submission without parsing JSON.
    """
    return _event_leaf_hash(from_hex0x(subject_id), sha256(event))


def event_leaf_hash_of(subject_id: str, event_hash: str) -> str:
    """As `event_leaf_hash`, where only the SHA-256 of the event is at hand."""
    return _event_leaf_hash(from_hex0x(subject_id), from_hex0x(event_hash))


def _event_leaf_hash(subject: bytes, event: bytes) -> str:
    if len(subject) != 32 or len(event) != 32:
        raise UsageError("a leaf needs 32-byte ids", f"subject {len(subject)} bytes, event hash {len(event)} bytes")
    return leaf_hash(subject + event)


def node_hash(left: str, right: str) -> str:
    """SHA-256(0x01 ‖ left ‖ right)."""
    return hex0x(hashlib.sha256(b"\x01" + from_hex0x(left) + from_hex0x(right)).digest())


class Frontier:
    """The right edge of a growing log: its size and the roots of its complete subtrees, O(log n) of them.

    Example: `rows = frontier.append(leaf); store.insert(rows); frontier.root`.
    """

    def __init__(self) -> None:
        self.size = 0
        self._peaks: list[bytes] = []  # complete subtrees from the left, one for each bit of `size`

    @classmethod
    def load(cls, nodes: NodeReader, size: int) -> Frontier:
        """Take up a stored log where it stands."""
        frontier = cls()
        frontier.size = size
        frontier._peaks = list(map(from_hex0x, nodes.read(_cover(_Range(0, size)))))
        return frontier

    @property
    def root(self) -> str:
        return _fold(list(map(hex0x, self._peaks))) if self._peaks else EMPTY_ROOT

    def append(self, leaf: str) -> list[Node]:
        """Add a leaf hash; returns the subtrees that it completes (the leaf itself first), to be stored."""
        level, position, current = 0, self.size, from_hex0x(leaf)
        completed = [Node(level, position, leaf)]
        while position & 1:
            current = hashlib.sha256(b"\x01" + self._peaks.pop() + current).digest()
            level, position = level + 1, position >> 1
            completed.append(Node(level, position, hex0x(current)))
        self._peaks.append(current)
        self.size += 1
        return completed


class MemoryLog:
    """A whole log in memory: for auditors, tests and small logs."""

    def __init__(self, leaves: Iterable[str] = ()) -> None:
        self._nodes: dict[NodeAddress, str] = {}
        self._frontier = Frontier()
        for leaf in leaves:
            self.append(leaf)

    @property
    def size(self) -> int:
        return self._frontier.size

    @property
    def root(self) -> str:
        return self._frontier.root

    def append(self, leaf: str) -> None:
        for level, position, value in self._frontier.append(leaf):
            self._nodes[NodeAddress(level, position)] = value

    def read(self, addresses: Sequence[NodeAddress]) -> list[str]:
        return [self._nodes[address] for address in addresses]


def root_of(nodes: NodeReader, size: int) -> str:
    """The root of the first `size` leaves."""
    return _hashes(nodes, [_Range(0, size)])[0] if size else EMPTY_ROOT


def inclusion_proof(nodes: NodeReader, index: int, size: int) -> tuple[str, ...]:
    """Sibling hashes from leaf `index` up to the root of the first `size` leaves (RFC 9162 §2.1.3.1)."""
    if not 0 <= index < size:
        raise UsageError("no such leaf in a tree of that size", f"leaf {index}, size {size}")
    return _hashes(nodes, list(_inclusion_ranges(index, _Range(0, size))))


def consistency_proof(nodes: NodeReader, old_size: int, new_size: int) -> tuple[str, ...]:
    """Hashes that show the first `old_size` leaves unchanged in the first `new_size` (RFC 9162 §2.1.4.1).

    Empty where `old_size` is 0 or equals `new_size`.
    """
    if not 0 <= old_size <= new_size:
        raise UsageError("a log only grows", f"from {old_size} to {new_size}")
    if old_size in (0, new_size):
        return ()
    return _hashes(nodes, list(_consistency_ranges(old_size, _Range(0, new_size), whole=True)))


def verify_inclusion(leaf: str, index: int, size: int, proof: Sequence[str], root: str) -> bool:
    """Whether `leaf` (a leaf hash) is at `index` in the tree of `size` leaves with this root (§2.1.3.2)."""
    if not 0 <= index < size or not _is_proof(leaf, *proof):
        return False
    position, last, current = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if position & 1 or position == last:
            current = node_hash(sibling, current)
            position, last = _skip_levels_without_sibling(position, last)
        else:
            current = node_hash(current, sibling)
        position, last = position >> 1, last >> 1
    return last == 0 and current == root


def verify_consistency(old_size: int, new_size: int, old_root: str, new_root: str, proof: Sequence[str]) -> bool:
    """Whether the tree of `new_size` leaves starts with the one of `old_size` (§2.1.4.2)."""
    if not 0 <= old_size <= new_size or not _is_proof(old_root, *proof):
        return False
    if old_size == 0:
        return not proof and old_root == EMPTY_ROOT
    if old_size == new_size:
        return not proof and old_root == new_root
    return _roots_from_consistency(old_size, new_size, old_root, proof) == (old_root, new_root)


def _is_proof(*hashes: str) -> bool:
    """A proof comes from a stranger: its length and the form of each hash are checked before hashing."""
    return len(hashes) <= MAX_PROOF_HASHES + 1 and all(map(is_hash32, hashes))


def _roots_from_consistency(
    old_size: int, new_size: int, old_root: str, proof: Sequence[str]
) -> tuple[str, str] | None:
    """Both roots as the proof rebuilds them; None where it is too short or too long."""
    # A complete old tree is itself a node of the new one, and the proof leaves it out.
    path = [old_root, *proof] if old_size & (old_size - 1) == 0 else list(proof)
    if not path:
        return None
    position, last = old_size - 1, new_size - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    old = new = path[0]
    for sibling in path[1:]:
        if last == 0:
            return None
        if position & 1 or position == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            position, last = _skip_levels_without_sibling(position, last)
        else:
            new = node_hash(new, sibling)
        position, last = position >> 1, last >> 1
    return (old, new) if last == 0 else None


def _skip_levels_without_sibling(position: int, last: int) -> tuple[int, int]:
    """On the right edge a node moves up unchanged until it is a right child."""
    while not position & 1 and position:
        position, last = position >> 1, last >> 1
    return position, last


def _split(leaves: _Range) -> int:
    """Where the RFC divides a range: after the largest power of two below its length."""
    return leaves.start + (1 << (leaves.end - leaves.start - 1).bit_length() - 1)


def _inclusion_ranges(index: int, leaves: _Range) -> Iterable[_Range]:
    if leaves.end - leaves.start == 1:
        return
    middle = _split(leaves)
    left, right = _Range(leaves.start, middle), _Range(middle, leaves.end)
    own, sibling = (left, right) if index < middle else (right, left)
    yield from _inclusion_ranges(index, own)
    yield sibling


def _consistency_ranges(old_size: int, leaves: _Range, *, whole: bool) -> Iterable[_Range]:
    """SUBPROOF of the RFC; `whole` while the range still starts the old tree at leaf 0."""
    if leaves.end == old_size:
        if not whole:
            yield leaves
        return
    middle = _split(leaves)
    left, right = _Range(leaves.start, middle), _Range(middle, leaves.end)
    if old_size <= middle:
        yield from _consistency_ranges(old_size, left, whole=whole)
        yield right
    else:
        yield from _consistency_ranges(old_size, right, whole=False)
        yield left


def _cover(leaves: _Range) -> list[NodeAddress]:
    """The complete subtrees of a range, from the left: one for each bit of its length."""
    addresses, start = [], leaves.start
    while start < leaves.end:
        level = (leaves.end - start).bit_length() - 1
        addresses.append(NodeAddress(level, start >> level))
        start += 1 << level
    return addresses


def _hashes(nodes: NodeReader, ranges: Sequence[_Range]) -> tuple[str, ...]:
    """The hash of each range, from one read of the store."""
    covers = [_cover(leaves) for leaves in ranges]
    values = iter(nodes.read([address for cover in covers for address in cover]))
    return tuple(_fold([next(values) for _ in cover]) for cover in covers)


def _fold(peaks: Sequence[str]) -> str:
    """The root over complete subtrees in falling order of size: the smallest are joined first."""
    current = peaks[-1]
    for peak in reversed(peaks[:-1]):
        current = node_hash(peak, current)
    return current
