"""Rollouts cut into chunks: which values one proof is about.

In: hidden states of each rollout's rows, [T, H], row 0 being the last prompt token's state; or activations
as the published library's calls take them. Out: `Piece`s, flat bit patterns and how they are cut. The chunks
of a rollout are 32 rows each, the last one shorter, flattened row by row.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from protocol.errors import ProofpoolError
from protocol.toploc.activations import Activations, bit_patterns
from protocol.toploc.paths import Piece
from protocol.toploc.topk import Bits


def rollout_pieces(rollouts: Sequence[Bits], chunk_rows: int, topk: int) -> list[Piece]:
    """One piece a rollout [T, H]. Refuses any that aren't so with T >= 1 and one H >= k: every chunk needs k values."""
    widths = {rows.shape[1] if rows.ndim == 2 and len(rows) else 0 for rows in rollouts}
    if len(widths) > 1 or min(widths, default=topk) < topk:
        shapes = ", ".join(str(rows.shape) for rows in rollouts[:4])
        todo = f"pass [T, H] a rollout, with T >= 1 and the same H >= {topk} for all"
        raise ProofpoolError("hidden states have the wrong shape", shapes, todo)
    return [Piece(rows.reshape(-1), chunk_rows * rows.shape[1]) for rows in rollouts]


def published_pieces(
    activations: Sequence[Activations] | Activations, decode_batching_size: int, skip_prefill: bool
) -> tuple[list[Piece], int]:
    """The chunks of the published library's calls, and the pattern of infinity in their format.

    The first item is a chunk, unless skipped; then each `decode_batching_size` items are, in any shape.
    """
    if decode_batching_size < 1 or len(activations) == 0:
        why = f"{len(activations)} activations, {decode_batching_size} a proof"
        raise ProofpoolError("there is nothing to make proofs of", why, "pass activations and a positive batch size")
    num_prefill = 0 if skip_prefill else 1
    parts = [activations[:num_prefill], activations[num_prefill:]]
    found = [_pieces(part, decode_batching_size) for part in parts if len(part)]
    infinities = {infinity for _, infinity in found}
    if len(infinities) > 1:
        raise _two_formats()
    return [piece for pieces, _ in found for piece in pieces], infinities.pop()


def _pieces(items: Sequence[Activations] | Activations, batch: int) -> tuple[list[Piece], int]:
    if not isinstance(items, Sequence):
        return _one_piece(items, batch)
    if len({(type(item), item.dtype, item.shape) for item in items}) == 1:
        return _one_piece(_joined(items), batch * (items[0].shape[0] if items[0].ndim else 1))
    flat = [bit_patterns(item) for item in items]
    if len({infinity for _, infinity in flat}) > 1:
        raise _two_formats()
    batches = [flat[start : start + batch] for start in range(0, len(flat), batch)]
    joined = [np.concatenate([bits.reshape(-1) for bits, _ in chunk]) for chunk in batches]
    return [Piece(values, max(1, len(values))) for values in joined], flat[0][1]


def _one_piece(items: Activations, batch: int) -> tuple[list[Piece], int]:
    """One piece of items that all have one shape, along the first dimension."""
    bits, infinity = bit_patterns(items)
    return [Piece(bits.reshape(-1), max(1, min(batch * (bits.size // len(bits)), bits.size)))], infinity


def _joined(items: Sequence[Activations]) -> Activations:
    """Equal items one after the other, in one call: an item at a time costs as much as all else together."""
    if isinstance(items[0], np.ndarray):
        return np.concatenate([np.atleast_1d(item) for item in items])
    torch = sys.modules["torch"]
    joined: Activations = torch.stack(list(items)) if items[0].ndim == 0 else torch.cat(list(items))
    return joined


def _two_formats() -> ProofpoolError:
    return ProofpoolError("activations mix two formats", "bfloat16 and float16", "pass one format")
