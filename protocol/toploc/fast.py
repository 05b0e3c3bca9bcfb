"""The three steps of paths.py by compiled kernels. Loaded at their first use: see protocol/kernels.py."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from protocol.toploc import kernel_field, kernel_topk
from protocol.toploc.compare import NUM_COUNTS, NUM_MANTISSAS, Comparison
from protocol.toploc.paths import Chosen, Claims, Piece
from protocol.toploc.topk import Ties


def choose(pieces: Iterable[Piece], topk: int, ties: Ties, infinity: int) -> Chosen:
    indices, values = [np.empty((0, topk), dtype=np.int64)], [np.empty((0, topk), dtype=np.uint16)]
    for piece in pieces:
        indices.append(np.empty((piece.num_chunks, topk), dtype=np.int64))
        values.append(np.empty((piece.num_chunks, topk), dtype=np.uint16))
        kernel_topk.choose(piece.flat, piece.chunk_values, infinity, ties == "torch-cpu", indices[-1], values[-1])
    return Chosen(np.concatenate(indices), np.concatenate(values))


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
