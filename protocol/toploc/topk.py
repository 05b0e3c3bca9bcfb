"""Which values a proof is about: the k largest magnitudes, by one of two tie rules.

In: bit patterns [C, N] uint16. Out: indices [C, k] int64, in no particular order (a proof depends on
the set alone). A NaN counts as larger than infinity, and all NaNs as equal.

bf16 has 8 significant bits, so the k-th magnitude is nearly always tied (86 % of Gaussian chunks of
32 x 2048), and the rule decides the bytes:
- "lowest": of equal magnitudes the lower index wins. The default; needs numpy only.
- "torch-cpu": what `tensor.abs().topk(k)` keeps on a CPU, which depends on libstdc++'s partial_sort
  and nth_element; byte-identical to proofs that the published library builds there.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from protocol.toploc.modulus import Indices

Bits = npt.NDArray[np.uint16]
Ties = Literal["lowest", "torch-cpu"]

BF16_INFINITY = 0x7F80
F16_INFINITY = 0x7C00

_BLOCK_BYTES = 2**20
"""Bit patterns at a time, so that the passes over them stay in the cache."""
_MAXIMA_PER_VALUE = 8


def select(bits: Bits, topk: int, ties: Ties = "lowest", infinity: int = BF16_INFINITY) -> Indices:
    """Indices [C, k] of the k largest magnitudes of each row [C, N].

    Raises ValueError for k < 1, rows of fewer than k values, or an unknown rule.
    """
    num_rows, num_elements = bits.shape
    if not 1 <= topk <= num_elements:
        raise ValueError(f"topk is {topk} for chunks of {num_elements} values")
    out = np.empty((num_rows, topk), dtype=np.int64)
    step = min(num_rows, max(1, _BLOCK_BYTES // (2 * num_elements)))
    buffer = np.empty((step, num_elements), dtype=np.uint16)
    for start in range(0, num_rows, step or 1):
        block = bits[start : start + step]
        out[start : start + step] = _select_keys(_magnitudes(block, infinity, buffer[: len(block)]), topk, ties)
    return out


def _select_keys(keys: Bits, topk: int, ties: Ties) -> Indices:
    if ties == "lowest":
        return _select_lowest(keys, topk)
    if ties == "torch-cpu":
        from protocol.toploc.torch_ties import select_torch_cpu

        return select_torch_cpu(keys, topk)
    raise ValueError(f"no rule for ties is called {ties!r}")


def _magnitudes(bits: Bits, infinity: int, out: Bits) -> Bits:
    """Order-preserving keys: |v| as an integer, every NaN just above infinity."""
    np.bitwise_and(bits, np.uint16(0x7FFF), out=out)
    if out.max() > infinity:
        np.minimum(out, np.uint16(infinity + 1), out=out)
    return out


def floor_of_topk(keys: Bits, topk: int) -> Bits:
    """A value [R] that the k-th largest key of each row [R, N] reaches at least; often just below it.

    The k-th largest of many block maxima is such a bound, as k blocks hold a key that large.
    """
    num_rows, num_elements = keys.shape
    size = max(1, num_elements // (_MAXIMA_PER_VALUE * topk))
    length = num_elements // size
    # A block is every length-th key, so that the maximum is taken over whole vectors at once.
    maxima = keys[:, : size * length].reshape(num_rows, size, length).max(axis=1)
    return np.partition(maxima, length - topk, axis=1)[:, length - topk]


def sparse(mask: npt.NDArray[np.bool_]) -> tuple[Indices, Indices, Indices]:
    """Of each True in [R, N]: its row, its index in the row, and how many came before it in the row."""
    flat = np.flatnonzero(mask)
    rows, indices = np.divmod(flat, mask.shape[1])
    counts = np.bincount(rows, minlength=len(mask))
    return rows, indices, np.arange(len(flat)) - np.repeat(np.cumsum(counts) - counts, counts)


def _select_lowest(keys: Bits, topk: int) -> Indices:
    floor = floor_of_topk(keys, topk)
    rows, indices, places = sparse(keys >= floor[:, None])
    # One integer ranks a candidate: larger key first, then the lower index.
    ranked = np.full((len(keys), places.max() + 1), np.iinfo(np.int64).max)
    ranked[rows, places] = (0xFFFF - keys[rows, indices].astype(np.int64)) << 40 | indices
    chosen = np.partition(ranked, topk - 1, axis=1)[:, :topk]
    result: Indices = chosen & ((1 << 40) - 1)
    return result
