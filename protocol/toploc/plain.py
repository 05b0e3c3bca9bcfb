"""The three steps of paths.py by numpy (and torch's top-k for its ties), a batch of chunks at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from protocol.toploc.compare import EXPONENT, MANTISSA, NUM_MANTISSAS, SIGN, Comparison
from protocol.toploc.encoding import Residues
from protocol.toploc.field import evaluate, interpolate, to_field
from protocol.toploc.modulus import Indices, injective_moduli
from protocol.toploc.paths import Chosen, Claims, Piece
from protocol.toploc.topk import Bits, Ties, select


def choose(pieces: Iterable[Piece], topk: int, ties: Ties, infinity: int) -> Chosen:
    chunks = [chunk for piece in pieces for chunk in _chunks(piece, ties)]
    indices = np.empty((len(chunks), topk), dtype=np.int64)
    values = np.empty((len(chunks), topk), dtype=np.uint16)
    for numbers in _equally_long(chunks):
        bits = np.stack([chunks[number] for number in numbers])
        indices[numbers] = select(bits, topk, ties, infinity)
        values[numbers] = np.take_along_axis(bits, indices[numbers], axis=1)
    return Chosen(indices, values)


def fit(chosen: Chosen) -> Claims:
    moduli = injective_moduli(chosen.indices)
    coefficients = interpolate(to_field(chosen.indices % moduli[:, None]), to_field(chosen.values))
    return Claims(moduli, coefficients.astype(np.uint16))


def compare(claims: Claims, own: Chosen, mask: int) -> Comparison:
    points = to_field(own.indices % claims.moduli[:, None])
    claimed = evaluate(claims.coefficients.astype(np.float64), points).astype(np.uint16)
    differing = claimed ^ own.values
    errors = _errors(claimed, own.values, (differing & mask) == 0)
    reached = np.cumsum(errors, axis=1)
    total = reached[:, -1]
    columns = (
        ((differing & SIGN) != 0).sum(axis=1),
        ((differing & EXPONENT) != 0).sum(axis=1),
        total,
        errors @ np.arange(NUM_MANTISSAS),
        _ranked(reached, (total - 1) // 2),
        _ranked(reached, total // 2),
        _num_distinct(claimed),
        _num_distinct(own.values),
    )
    return Comparison(np.stack(columns, axis=1), errors)


def _chunks(piece: Piece, ties: Ties) -> list[Bits]:
    """The chunks of a piece; under "lowest" a short one of several is filled up with zeros, to be in their batch.

    The fill is never chosen: nothing is smaller than a zero, it comes last, and at least k real values come
    before it. How torch breaks ties depends on the number of values, so there short chunks stay short.
    """
    starts = range(0, len(piece.flat), piece.chunk_values)
    chunks = [piece.flat[start : start + piece.chunk_values] for start in starts]
    if ties == "lowest" and len(chunks[-1]) < piece.chunk_values:
        chunks[-1] = np.pad(chunks[-1], (0, piece.chunk_values - len(chunks[-1])))
    return chunks


def _equally_long(chunks: Sequence[Bits]) -> list[Indices]:
    """The numbers of the chunks, those of equal length together."""
    numbers: dict[int, list[int]] = {}
    for number, chunk in enumerate(chunks):
        numbers.setdefault(len(chunk), []).append(number)
    return [np.array(group) for group in numbers.values()]


def _errors(claimed: Residues, own: Bits, compared: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Indices:
    """How often each mantissa error occurs [C, 128] among the values [C, n] that are compared."""
    rows, columns = np.nonzero(compared)
    pairs = (claimed & MANTISSA).astype(np.int64), (own & MANTISSA).astype(np.int64)
    cells = rows * NUM_MANTISSAS + np.abs(pairs[0] - pairs[1])[rows, columns]
    return np.bincount(cells, minlength=len(own) * NUM_MANTISSAS).reshape(len(own), NUM_MANTISSAS)


def _ranked(reached: Indices, rank: Indices) -> Indices:
    """The error [C] with `rank` [C] smaller or equal ones before it; the last where there are no more."""
    ranked: Indices = np.minimum((reached <= rank[:, None]).sum(axis=1), NUM_MANTISSAS - 1)
    return ranked


def _num_distinct(values: Bits) -> Indices:
    """How many different values each row [C, n] holds."""
    ordered = np.sort(values, axis=1)
    counts: Indices = (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1) + 1
    return counts
