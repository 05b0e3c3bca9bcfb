"""Blocks of a patch: what became of the words in a stretch of a version's data, coded against what they were.

A block has up to some MiB of words of 1, 2, 4 or 8 bytes. Few changed: it is *sparse*, a gap and a small difference for
each (`patch_sparse.py`). Many changed: it is *dense*, all differences. docs/protocol.md has the format.

In: words before and after. Out: bytes; and back. Bytes may come from anybody: what they claim is checked before memory
is taken for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from protocol.shardcast.patch_coding import (
    Changes,
    Words,
    from_planes,
    malformed,
    planes,
    squeezed,
    unsqueezed,
    unzigzag,
    zigzag,
)
from protocol.shardcast.patch_sparse import is_compiled, make_sparse, read_sparse

UNCHANGED, SPARSE, DENSE = 0, 1, 2
DENSE_SHARE = 4
"""Where more than one word of so many changed, a block is dense."""


class Block(NamedTuple):
    """A block's bytes, and how many words they change."""

    data: bytes
    num_changed: int


def encode_block(old: Words, new: Words, octave: int = 0) -> Block:
    """The block that makes `new` of `old`, 1-D arrays of the same unsigned type and length.

    `octave`: the words' magnitudes double with every so many (2^7 for bf16); 0: they have no such classes.
    """
    num_changed = _num_changed(old, new)
    if not num_changed:
        return Block(bytes([UNCHANGED]), 0)
    if num_changed * DENSE_SHARE > len(old):
        return Block(bytes([DENSE]) + _dense(old, new), num_changed)
    return Block(bytes([SPARSE]) + make_sparse(old, new, num_changed, octave).to_bytes(), num_changed)


def decode_block(data: bytes, old: Words) -> Changes:
    """The changes that a block makes to `old`. Raises MalformedFile where its bytes make no sense."""
    kind, body = (data[0], data[1:]) if data else (None, b"")
    if kind == UNCHANGED and not body:
        return Changes(np.zeros(0, dtype=np.uint32), old[:0])
    if kind == DENSE:
        return _read_dense(body, old)
    if kind == SPARSE:
        return read_sparse(body, old)
    raise malformed(f"kind {kind} with {len(body)} bytes")


def max_block_bytes(num_words: int, word_bytes: int) -> int:
    """More than any block of so many words needs: readers refuse longer ones before they take memory for them."""
    return 1024 + 2 * num_words * (word_bytes + 4)


def _num_changed(old: Words, new: Words) -> int:
    if not is_compiled(old) or not is_compiled(new):
        return int(np.count_nonzero(old != new))
    from protocol.shardcast import patch_kernels

    return int(patch_kernels.count(old, new))


def _dense(old: Words, new: Words) -> bytes:
    return squeezed(planes(zigzag(new - old)))


def _read_dense(body: bytes, old: Words) -> Changes:
    differences = unzigzag(from_planes(unsqueezed(body, old.nbytes), old.dtype))
    return Changes(np.arange(len(old), dtype=np.uint32), old + differences)
