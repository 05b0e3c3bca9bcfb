"""Ethereum's Merkle-Patricia tries, as far as receipts take them: a proof that one value is under a root.

In: keys and values, the root that a block's header names. Out: the nodes from the root down to a key, and the value
that such nodes prove. Source: the Yellow Paper, appendix D. A node is an RLP list of two items (an extension or a leaf,
by its path) or of seventeen (a branch); one of less than 32 bytes stands in its parent, any other is named by its hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import rlp
from rlp.exceptions import DecodingError

from protocol.canonical import hex0x, keccak256
from protocol.errors import VerificationFailed

Nibbles = tuple[int, ...]
Item = Any
"""An RLP item: bytes, or a list of items."""
EMPTY = b""
HASH_BYTES = 32
MAX_NODES = 64
"""Of a proof; a key of a block's receipts has at most eight nibbles or so."""


def prove(values: Mapping[bytes, bytes], key: bytes) -> tuple[bytes, list[bytes]]:
    """The root of the trie, and the nodes that lead from there to `key`, each as RLP."""
    nodes: dict[bytes, bytes] = {}
    top = rlp.encode(_build({_nibbles(k): value for k, value in values.items()}, nodes))
    nodes[keccak256(top)] = top
    path: list[bytes] = []
    proven_value(keccak256(top), key, _Recorded(nodes, path))
    return keccak256(top), path


def proven_value(root: bytes, key: bytes, nodes: Sequence[bytes] | Mapping[bytes, bytes]) -> bytes:
    """The value at `key`. Raises VerificationFailed where the nodes don't lead to one."""
    found = nodes if isinstance(nodes, Mapping) else {keccak256(node): node for node in nodes[:MAX_NODES]}
    node, path = _resolved(root, found), _nibbles(key)
    for _ in range(MAX_NODES):
        if isinstance(node, list) and len(node) == 17:
            if not path:
                return _value(node[16])
            node, path = _resolved(node[path[0]], found), path[1:]
        elif isinstance(node, list) and len(node) == 2:
            prefix, is_leaf = _decoded_path(node[0])
            if path[: len(prefix)] != prefix or (is_leaf and path != prefix):
                raise VerificationFailed("the trie has no such key", hex0x(key))
            if is_leaf:
                return _value(node[1])
            node, path = _resolved(node[1], found), path[len(prefix) :]
        else:
            break
    raise VerificationFailed("a node of the trie is malformed", hex0x(root))


class _Recorded(dict[bytes, bytes]):
    """Nodes by their hashes; those that are asked for are noted in order."""

    def __init__(self, nodes: Mapping[bytes, bytes], path: list[bytes]) -> None:
        super().__init__(nodes)
        self._path = path

    def __getitem__(self, node_hash: bytes) -> bytes:
        self._path.append(found := super().__getitem__(node_hash))
        return found


def _build(values: Mapping[Nibbles, bytes], nodes: dict[bytes, bytes]) -> Item:
    """The node over these values; those below it that are named by their hash go into `nodes`."""
    if len(values) == 1:
        ((path, value),) = values.items()
        return [_encoded_path(path, is_leaf=True), value]
    if shared := _shared_prefix(list(values)):
        below = _build({path[len(shared) :]: value for path, value in values.items()}, nodes)
        return [_encoded_path(shared, is_leaf=False), _named(below, nodes)]
    branch: list[Item] = [EMPTY] * 17
    branch[16] = values.get((), EMPTY)
    for nibble in range(16):
        if below := {path[1:]: value for path, value in values.items() if path[:1] == (nibble,)}:
            branch[nibble] = _named(_build(below, nodes), nodes)
    return branch


def _named(node: Item, nodes: dict[bytes, bytes]) -> Item:
    encoded = rlp.encode(node)
    if len(encoded) < HASH_BYTES:
        return node
    nodes[keccak256(encoded)] = encoded
    return keccak256(encoded)


def _resolved(name: Item, nodes: Mapping[bytes, bytes]) -> Item:
    if isinstance(name, list):
        return name
    try:
        return rlp.decode(nodes[name], strict=True)
    except KeyError as error:
        raise VerificationFailed("the proof lacks a node of the trie", hex0x(name) if name else "none there") from error
    except (DecodingError, RecursionError) as error:
        raise VerificationFailed("a node of the trie is no RLP", hex0x(name)) from error


def _value(item: Item) -> bytes:
    if not isinstance(item, bytes) or not item:
        raise VerificationFailed("the trie has no value there", "")
    return item


def _nibbles(key: bytes) -> Nibbles:
    return tuple(nibble for byte in key for nibble in (byte >> 4, byte & 15))


def _shared_prefix(paths: Sequence[Nibbles]) -> Nibbles:
    first, last = min(paths), max(paths)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]


def _encoded_path(path: Nibbles, *, is_leaf: bool) -> bytes:
    """Hex-prefix encoding: two flags, whether it is a leaf and whether the length is odd, then the nibbles."""
    flag = 2 * is_leaf + len(path) % 2
    padded = (flag, *path) if len(path) % 2 else (flag, 0, *path)
    return bytes(high << 4 | low for high, low in zip(padded[::2], padded[1::2], strict=True))


def _decoded_path(encoded: Item) -> tuple[Nibbles, bool]:
    if not isinstance(encoded, bytes) or not encoded or encoded[0] >> 4 > 3:
        raise VerificationFailed("a path in the trie is malformed", repr(encoded)[:80])
    nibbles, flag = _nibbles(encoded), encoded[0] >> 4
    return nibbles[1:] if flag & 1 else nibbles[2:], bool(flag & 2)
