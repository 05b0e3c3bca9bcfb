"""The three steps of a proof, each by compiled kernels or by plain numpy, with the same results.

    choose    flat values, cut into chunks  ->  indices and values of the k largest magnitudes of each
    fit       those                         ->  modulus and coefficients
    compare   a claim, and the verifier's own choice  ->  a Comparison

`path()` is the one place that decides: fast.py where kernels are enabled (numba is there and
PROOFPOOL_KERNELS isn't "plain"), else plain.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from protocol import kernels
from protocol.toploc.compare import Comparison
from protocol.toploc.encoding import Residues
from protocol.toploc.modulus import Indices
from protocol.toploc.topk import Bits, Ties


@dataclass(frozen=True)
class Piece:
    """Bit patterns [n], contiguous, in chunks of `chunk_values`; the last chunk may be shorter."""

    flat: Bits
    chunk_values: int

    @property
    def num_chunks(self) -> int:
        return -(-len(self.flat) // self.chunk_values)

    @property
    def least_values(self) -> int:
        """Values of its shortest chunk."""
        return len(self.flat) % self.chunk_values or min(len(self.flat), self.chunk_values)


@dataclass(frozen=True)
class Chosen:
    """`indices` int64 [C, k] within each chunk, in no particular order, and the `values` uint16 there."""

    indices: Indices
    values: Bits


@dataclass(frozen=True)
class Claims:
    """Polynomials as somebody sent them: `moduli` int64 [C] >= 1, `coefficients` uint16 [C, n], below 65497."""

    moduli: Indices
    coefficients: Residues


class Path(Protocol):
    """What fast.py and plain.py offer."""

    def choose(self, pieces: Iterable[Piece], topk: int, ties: Ties, infinity: int) -> Chosen:
        """The chunks of all pieces, in order. Every chunk holds at least k values."""

    def fit(self, chosen: Chosen) -> Claims:
        """The largest modulus that keeps each row's indices apart, and the polynomial through its points."""

    def compare(self, claims: Claims, own: Chosen, mask: int) -> Comparison:
        """Values claimed at the own indices against the own ones; mantissas where they agree in `mask`."""


def path() -> Path:
    """The path in force."""
    if kernels.are_enabled():
        from protocol.toploc import fast

        return fast
    from protocol.toploc import plain

    return plain


def choose(pieces: Iterable[Piece], topk: int, ties: Ties, infinity: int) -> Chosen:
    """Raises ValueError for k < 1, a chunk of fewer than k values, or an unknown rule."""
    if ties not in ("lowest", "torch-cpu"):
        raise ValueError(f"no rule for ties is called {ties!r}")
    return path().choose((_checked(piece, topk) for piece in pieces), topk, ties, infinity)


def _checked(piece: Piece, topk: int) -> Piece:
    if not 1 <= topk <= piece.least_values:
        raise ValueError(f"topk is {topk} for chunks of {piece.least_values} values")
    return piece
