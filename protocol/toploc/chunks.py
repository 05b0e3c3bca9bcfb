"""Rollouts cut into chunks: which values one proof is about.

In: hidden states of each rollout's rows, [T, H], row 0 being the last prompt token's state; or activations
as the published library's calls take them. Out: `Piece`s, flat bit patterns and how they are cut. The chunks
of a rollout are 32 rows each, the last one shorter, flattened row by row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Literal

import numpy as np

from protocol.errors import ProofpoolError
from protocol.toploc import device
from protocol.toploc.activations import Activations, bf16_patterns, bit_patterns, infinity_of
from protocol.toploc.paths import Chosen, Piece, choose
from protocol.toploc.topk import BF16_INFINITY, Bits, Ties

JOINED_BYTES = 1 << 21
"""Of a list's tensors at a time: few calls, and what was joined is still in the cache when it is read."""


def choose_in_rollouts(hidden: Sequence[Activations], chunk_rows: int, topk: int, ties: Ties) -> Chosen:
    """The choice in every chunk of bf16 rollouts [T, H], in order; on their device, if that is a GPU.

    Refuses any that aren't so with T >= 1 and one H >= k: every chunk needs k values. torch's ties are those
    of a CPU, so that for them all states are copied there.
    """
    _check_shapes(hidden, topk)
    if ties == "lowest" and any(map(device.is_remote, hidden)):
        found = [_choose_in_rollout(rows, chunk_rows, topk) for rows in hidden]
        return Chosen(np.concatenate([one.indices for one in found]), np.concatenate([one.values for one in found]))
    pieces = [Piece(bf16_patterns(rows).reshape(-1), chunk_rows * rows.shape[1]) for rows in hidden]
    return choose(pieces, topk, ties, BF16_INFINITY)


def _choose_in_rollout(rows: Activations, chunk_rows: int, topk: int) -> Chosen:
    if device.is_remote(rows):
        return device.choose_on_device(rows, chunk_rows, topk)
    return choose_in_rollouts([rows], chunk_rows, topk, "lowest")


def _check_shapes(hidden: Sequence[Activations], topk: int) -> None:
    widths = {rows.shape[1] if rows.ndim == 2 and len(rows) else 0 for rows in hidden}
    if len(widths) > 1 or min(widths, default=topk) < topk:
        shapes = ", ".join(str(tuple(rows.shape)) for rows in hidden[:4])
        todo = f"pass [T, H] a rollout, with T >= 1 and the same H >= {topk} for all"
        raise ProofpoolError("hidden states have the wrong shape", shapes, todo)


def published_pieces(
    activations: Sequence[Activations] | Activations, decode_batching_size: int, skip_prefill: bool
) -> tuple[Iterator[Piece], int]:
    """The chunks of the published library's calls, and the pattern of infinity in their format.

    The first item is a chunk, unless skipped; then each `decode_batching_size` items are, in any shape. Items
    of a list are joined when their turn comes.
    """
    if decode_batching_size < 1 or len(activations) == 0:
        why = f"{len(activations)} activations, {decode_batching_size} a proof"
        raise ProofpoolError("there is nothing to make proofs of", why, "pass activations and a positive batch size")
    infinities = {infinity_of(kind) for kind in _dtypes(activations)}
    if len(infinities) > 1:
        raise ProofpoolError("activations mix two formats", "bfloat16 and float16", "pass one format")
    return _pieces(activations, decode_batching_size, 0 if skip_prefill else 1), infinities.pop()


def _dtypes(activations: Sequence[Activations] | Activations) -> set[object]:
    if isinstance(activations, Sequence):
        return set(map(attrgetter("dtype"), activations))
    return {activations.dtype}


def _pieces(activations: Sequence[Activations] | Activations, batch: int, num_prefill: int) -> Iterator[Piece]:
    if num_prefill:
        yield _one_chunk(activations[:num_prefill])
    rest = activations[num_prefill:]
    if not isinstance(rest, Sequence):
        if len(rest):
            bits, _ = bit_patterns(rest)
            yield Piece(bits.reshape(-1), max(1, min(bits.size, batch * (bits.size // len(bits)))))
        return
    chunk_bytes = batch * rest[0].nbytes if rest else 0
    step = batch * max(1, JOINED_BYTES // max(1, chunk_bytes))
    for start in range(0, len(rest), step):
        yield from _chunks_of_items(rest[start : start + step], batch)


def _chunks_of_items(items: Sequence[Activations], batch: int) -> Iterator[Piece]:
    """One piece where all are tensors of one shape, and a chunk then is so many values; else one a chunk."""
    flat = _joined_tensors(items, "stack")
    if flat is not None and len(flat):
        yield Piece(flat, batch * (len(flat) // len(items)) if batch < len(items) else len(flat))
        return
    for start in range(0, len(items), batch):
        yield _one_chunk(items[start : start + batch])


def _one_chunk(items: Sequence[Activations] | Activations) -> Piece:
    flat = _joined(items) if isinstance(items, Sequence) else bit_patterns(items)[0].reshape(-1)
    return Piece(flat, max(1, len(flat)))


def _joined(items: Sequence[Activations]) -> Bits:
    """Items one after the other, flat."""
    joined = _joined_tensors(items, "cat")
    if joined is not None:
        return joined
    flat = [bit_patterns(item)[0].reshape(-1) for item in items]
    return flat[0] if len(flat) == 1 else np.concatenate(flat)


def _joined_tensors(items: Sequence[Activations], how: Literal["cat", "stack"]) -> Bits | None:
    """Tensors by one call, as to touch each one costs as much as all else together.

    None where their shapes don't allow it, they are on several devices, or not all are tensors.
    """
    torch = sys.modules.get("torch")
    if len(items) < 2 or torch is None:
        return None
    try:
        return bit_patterns(getattr(torch, how)(items))[0].reshape(-1)
    except (RuntimeError, TypeError):
        return None
