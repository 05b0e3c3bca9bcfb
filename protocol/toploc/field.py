"""Arithmetic in GF(65497), batched over chunks: interpolate points, evaluate polynomials.

In and out: float64 arrays that hold integers in [0, 65497), one row a chunk. Products of two such
values stay below 2^32 and sums of up to 2^17 products below 2^49, which float64 holds exactly; so
every step is a float64 matrix product (BLAS) followed by one exact reduction.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Field = npt.NDArray[np.float64]

PRIME = 65497
"""2^16 - 39, the largest prime for which every bf16 pattern but a NaN's is its own residue."""
MAX_POINTS = 2**17

_GENERATOR = 7
"""Of the multiplicative group: 7^((p-1)/q) != 1 for each prime q of p - 1 = 2^3 * 3 * 2729."""
_BLOCK = 32
"""Chunks at a time: their power tables (about 32 KiB a chunk at k = 128) then stay in the cache."""


def to_field(values: npt.ArrayLike) -> Field:
    """Any integers to their residues."""
    return (np.asarray(values, dtype=np.int64) % PRIME).astype(np.float64)


def evaluate(coefficients: Field, x: Field) -> Field:
    """Values [C, n] of the polynomials [C, k] (ascending coefficients) at the points [C, n]."""
    out = np.empty_like(x)
    for block in _blocks(len(x)):
        out[block] = _Powers(x[block], coefficients.shape[1]).evaluate(coefficients[block])
    return out


def interpolate(x: Field, y: Field) -> Field:
    """Coefficients [C, k], ascending, of the one polynomial of degree < k through the points of each row.

    With M = prod(X - x_i), w_i = y_i / M'(x_i) and the power sums s_t = sum w_i x_i^t, the answer
    sum w_i M / (X - x_i) has c_j = sum_t M_(j+1+t) s_t: no division but one table look-up a point.

    Raises ValueError where two points of a row share their x.
    """
    if x.shape[1] > MAX_POINTS:
        raise ValueError(f"{x.shape[1]} points; sums are exact up to {MAX_POINTS}")
    out = np.empty_like(x)
    for block in _blocks(len(x)):
        out[block] = _interpolate_block(x[block], y[block])
    return out


def _interpolate_block(x: Field, y: Field) -> Field:
    k = x.shape[1]
    powers = _Powers(x, k)
    master = _master(x)
    slope = powers.evaluate(_reduce(master[:, 1:] * np.arange(1.0, k + 1)))
    if not slope.all():
        raise ValueError("two points of a polynomial share their x")
    sums = powers.sums(_reduce(y * _inverses()[slope.astype(np.intp)]))
    padded = np.zeros((len(x), 2 * k - 1))
    padded[:, :k] = master[:, 1:]
    return _reduce(np.einsum("cjt,ct->cj", _windows(padded, k), sums))


class _Powers:
    """Powers of x [C, n] split as x^(a*j + i): `small` [C, a, n] times `large` [C, ceil(k/a), n]."""

    def __init__(self, x: Field, k: int) -> None:
        width = 1 << ((max(k, 1) - 1).bit_length() + 1) // 2
        self.k = k
        self.small = _power_table(x, width)
        self.large = _power_table(_reduce(self.small[:, -1] * x), -(-k // width))

    def evaluate(self, coefficients: Field) -> Field:
        """Values [C, n]: sum over j of (sum over i of c[a*j + i] x^i) x^(a*j)."""
        num_chunks, height, width = len(coefficients), self.large.shape[1], self.small.shape[1]
        padded = np.zeros((num_chunks, height * width))
        padded[:, : self.k] = coefficients
        inner = _reduce(padded.reshape(num_chunks, height, width) @ self.small)
        return _reduce(np.einsum("cjn,cjn->cn", inner, self.large))

    def sums(self, weights: Field) -> Field:
        """Power sums [C, k]: s_t = sum over n of w_n x_n^t."""
        weighted = _reduce(self.large * weights[:, None, :])
        sums = _reduce(weighted @ self.small.transpose(0, 2, 1))
        return sums.reshape(len(sums), -1)[:, : self.k]


def _power_table(x: Field, count: int) -> Field:
    """x^0 … x^(count-1) as [C, count, n], by doubling."""
    table = np.empty((x.shape[0], count, x.shape[1]))
    table[:, 0] = 1.0
    done, step = 1, x
    while done < count:
        more = min(done, count - done)
        table[:, done : done + more] = _reduce(table[:, :more] * step[:, None, :])
        step = _reduce(step * step)
        done += more
    return table


def _master(x: Field) -> Field:
    """prod(X - x_i) for each row, as k + 1 ascending coefficients, by a product tree."""
    num_chunks, k = x.shape
    size = 1 << (k - 1).bit_length()
    # Extra roots at 0 fill the tree up; they only shift the coefficients up by as many places.
    tree = np.zeros((num_chunks, size, 1))
    tree[:, :k, 0] = np.where(x > 0, PRIME - x, 0.0)
    while tree.shape[1] > 1:
        tree = _multiply_monic(tree[:, 0::2], tree[:, 1::2])
    return np.concatenate([tree[:, 0, size - k :], np.ones((num_chunks, 1))], axis=1)


def _multiply_monic(a: Field, b: Field) -> Field:
    """(X^d + a)(X^d + b) without its leading 1: [C, m, d] twice to [C, m, 2d]."""
    num_chunks, num_pairs, d = a.shape
    rows = num_chunks * num_pairs
    padded = np.zeros((rows, 3 * d - 1))
    padded[:, d : 2 * d] = b.reshape(rows, d)[:, ::-1]
    # Window n of the reversed b, read backwards, meets a in the n-th coefficient of a * b.
    out = np.einsum("rnt,rt->rn", _windows(padded, d)[:, ::-1], a.reshape(rows, d))
    out[:, d:] += a.reshape(rows, d)
    out[:, d:] += b.reshape(rows, d)
    return _reduce(out).reshape(num_chunks, num_pairs, 2 * d)


def _windows(rows: Field, width: int) -> Field:
    """All windows of `width` along the last axis, as a view."""
    return np.lib.stride_tricks.sliding_window_view(rows, width, axis=1)


def _reduce(values: Field) -> Field:
    """Integers in [0, 2^50) to their residues, in place.

    Adding a half keeps the quotient at least 2^-17 away from any integer, which is more than its
    rounding error (2^-19 at 2^50), so `floor` can't be off by one.
    """
    quotients = values + 0.5
    quotients *= 1.0 / PRIME
    np.floor(quotients, out=quotients)
    quotients *= PRIME
    values -= quotients
    return values


@cache
def _inverses() -> Field:
    """1/v at index v (and 0 at 0), from the powers of a generator: 1/g^t = g^(p-1-t)."""
    powers = _power_table(np.full((1, 1), float(_GENERATOR)), PRIME - 1)[0, :, 0]
    table = np.zeros(PRIME)
    table[powers.astype(np.intp)] = np.roll(powers[::-1], 1)
    return table


def _blocks(count: int) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, count, _BLOCK)]
