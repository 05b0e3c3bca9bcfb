"""Rollouts cut into chunks: which values one proof is about.

In: bit patterns of each rollout's rows, [T, H], row 0 being the last prompt token's state. Out:
chunks of 32 rows, the last one of a rollout shorter, flattened row by row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from protocol.errors import ProofpoolError
from protocol.toploc.activations import Activations, bit_patterns
from protocol.toploc.encoding import num_chunks
from protocol.toploc.modulus import Indices
from protocol.toploc.topk import Bits, Ties


def pack_chunks(rollouts: Sequence[Bits], chunk_rows: int) -> Bits:
    """All chunks of all rollouts, in order, as one array [C, chunk_rows * H], short ones filled up with zeros.

    For ties="lowest" only. There the fill is never chosen: nothing is smaller than a zero, it comes
    last, and at least k real values come before it.
    """
    counts = [num_chunks(len(rows), chunk_rows) for rows in rollouts]
    hidden_size = rollouts[0].shape[1]
    packed = np.zeros((sum(counts), chunk_rows * hidden_size), dtype=np.uint16)
    by_row, start = packed.reshape(-1, hidden_size), 0
    for rows, count in zip(rollouts, counts, strict=True):
        by_row[start : start + len(rows)] = rows
        start += count * chunk_rows
    return packed


def group_chunks(rollouts: Sequence[Bits], chunk_rows: int, ties: Ties) -> list[tuple[Indices, Bits]]:
    """The chunks of all rollouts as batches: their numbers [c], counted through, and values [c, N].

    One batch under ties="lowest". How torch breaks ties depends on the number of values, so there
    short chunks stay short, and each length is a batch.
    """
    if ties == "lowest" and rollouts:
        packed = pack_chunks(rollouts, chunk_rows)
        return [(np.arange(len(packed)), packed)]
    cut = [rows[start : start + chunk_rows] for rows in rollouts for start in range(0, len(rows), chunk_rows)]
    return group_equal([rows.reshape(-1) for rows in cut])


def group_equal(chunks: Sequence[Bits]) -> list[tuple[Indices, Bits]]:
    """Flat chunks of equal length as batches: their numbers [c] and values [c, N]."""
    numbers: dict[int, list[int]] = {}
    for number, chunk in enumerate(chunks):
        numbers.setdefault(len(chunk), []).append(number)
    return [(np.array(group), np.stack([chunks[i] for i in group])) for group in numbers.values()]


def require_rows(rollouts: Sequence[Bits], topk: int) -> None:
    """Refuse rollouts that aren't [T, H] with T >= 1 and one H >= k for all: every chunk needs k values."""
    widths = {rows.shape[1] if rows.ndim == 2 and len(rows) else 0 for rows in rollouts}
    if len(widths) > 1 or min(widths, default=topk) < topk:
        shapes = ", ".join(str(rows.shape) for rows in rollouts[:4])
        todo = f"pass [T, H] a rollout, with T >= 1 and the same H >= {topk} for all"
        raise ProofpoolError("hidden states have the wrong shape", shapes, todo)


def flat_chunks(
    activations: Sequence[Activations] | Activations, decode_batching_size: int, skip_prefill: bool
) -> tuple[list[Bits], int]:
    """The chunks of the published library's calls, flattened, and the pattern of infinity in their format."""
    if decode_batching_size < 1 or len(activations) == 0:
        why = f"{len(activations)} activations, {decode_batching_size} a proof"
        raise ProofpoolError("there is nothing to make proofs of", why, "pass activations and a positive batch size")
    items, infinity = _flat_items(activations)
    chunks = [] if skip_prefill else [items[0]]
    for start in range(len(chunks), len(items), decode_batching_size):
        chunks.append(np.concatenate(items[start : start + decode_batching_size]))
    return chunks, infinity


def _flat_items(activations: Sequence[Activations] | Activations) -> tuple[list[npt.NDArray[np.uint16]], int]:
    if not isinstance(activations, Sequence):
        bits, infinity = bit_patterns(activations)
        return list(bits.reshape(len(bits), -1)), infinity
    patterns = [bit_patterns(item) for item in activations]
    infinities = {infinity for _, infinity in patterns}
    if len(infinities) > 1:
        raise ProofpoolError("activations mix two formats", "bfloat16 and float16", "pass one format")
    return [bits.reshape(-1) for bits, _ in patterns], infinities.pop()
