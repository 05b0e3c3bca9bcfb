"""The three steps of paths.py by compiled kernels. Loaded at their first use: see protocol/kernels.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from protocol.toploc import kernel_field, kernel_topk
from protocol.toploc.compare import NUM_COUNTS, NUM_MANTISSAS, Comparison
from protocol.toploc.paths import Chosen, Claims, Piece
from protocol.toploc.topk import Ties


def choose(pieces: Sequence[Piece], topk: int, ties: Ties, infinity: int) -> Chosen:
    num_chunks = sum(piece.num_chunks for piece in pieces)
    indices = np.empty((num_chunks, topk), dtype=np.int64)
    values = np.empty((num_chunks, topk), dtype=np.uint16)
    start, as_torch = 0, ties == "torch-cpu"
    for piece in pieces:
        stop = start + piece.num_chunks
        kernel_topk.choose(piece.flat, piece.chunk_values, infinity, as_torch, indices[start:stop], values[start:stop])
        start = stop
    return Chosen(indices, values)


def fit(chosen: Chosen) -> Claims:
    moduli = np.empty(len(chosen.indices), dtype=np.int64)
    coefficients = np.empty(chosen.indices.shape, dtype=np.uint16)
    kernel_field.fit(chosen.indices, chosen.values, moduli, coefficients)
    if not moduli.all():
        raise ValueError("no modulus keeps the indices apart: they are too many, or one of them is there twice")
    return Claims(moduli, coefficients)


def compare(claims: Claims, own: Chosen, mask: int) -> Comparison:
    counts = np.empty((len(own.values), NUM_COUNTS), dtype=np.int64)
    errors = np.empty((len(own.values), NUM_MANTISSAS), dtype=np.int64)
    kernel_field.compare(claims.moduli, claims.coefficients, own.indices, own.values, mask, counts, errors)
    return Comparison(counts, errors)
