"""Compiled arithmetic in GF(65497): chosen values to polynomials, and polynomials against values.

In and out: arrays with one row a chunk. The same results as modulus.py, field.py and compare.py give;
imported by fast.py alone. p = 2^16 - 39, so that a product of two residues (below 2^32) is reduced by folding
its upper half down twice, in 32-bit lanes that vectorise; every operation is wrapped in uint32, which numba
would widen to 64 bits otherwise.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.kernels import helper, kernel

Bits = npt.NDArray[np.uint16]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Lanes = npt.NDArray[np.uint32]
Sums = npt.NDArray[np.uint64]

_PRIME = 65497
_FOLD = 39
_PATTERNS = 2**16


@helper
def _reduced(product: np.uint32) -> np.uint32:
    """Any 32-bit number to its residue: 2^16 is 39 modulo p."""
    half, fold, prime = np.uint32(16), np.uint32(_FOLD), np.uint32(_PRIME)
    low = np.uint32(0xFFFF)
    value = np.uint32(np.uint32(np.uint32(product >> half) * fold) + np.uint32(product & low))
    value = np.uint32(np.uint32(np.uint32(value >> half) * fold) + np.uint32(value & low))
    less = np.uint32(value - prime)
    # Below p the difference wraps around to a huge number, so that the smaller one is the residue.
    return less if less < value else value


@helper
def _multiply(values: Lanes, by: Lanes) -> None:
    """In place. `by` is another array: arrays that may overlap don't vectorise."""
    for i in range(len(values)):
        values[i] = _reduced(np.uint32(values[i] * by[i]))


@helper
def _horner(coefficients: Lanes, x: Lanes, out: Lanes) -> None:
    """Values of the polynomial (ascending coefficients) at each x."""
    out[:] = 0
    for j in range(len(coefficients) - 1, -1, -1):
        coefficient = coefficients[j]
        for i in range(len(x)):
            out[i] = _reduced(np.uint32(np.uint32(out[i] * x[i]) + coefficient))


@helper
def _invert(values: Lanes, square: Lanes, out: Lanes) -> None:
    """1/v = v^(p-2) of each value, none of them 0. `square` is overwritten."""
    square[:] = values
    out[:] = 1
    exponent = _PRIME - 2
    while exponent:
        if exponent & 1:
            _multiply(out, square)
        for i in range(len(square)):
            square[i] = _reduced(np.uint32(square[i] * square[i]))
        exponent >>= 1


@helper
def _master(x: Lanes, out: Lanes) -> None:
    """prod(X - x_i) as k + 1 ascending coefficients.

    The product grows downwards from the end, its leading 1 staying where it is: so each step writes to
    where it has read already, and vectorises.
    """
    k = len(x)
    out[:] = 0
    out[k] = 1
    for i in range(k):
        minus = np.uint32(np.uint32(_PRIME) - x[i])
        product = out[k - 1 - i :]
        for j in range(i + 1):
            product[j] = _reduced(np.uint32(np.uint32(product[j + 1] * minus) + product[j]))


@helper
def _interpolate(x: Lanes, y: Lanes, rows: Lanes, sums: Sums, out: Bits) -> None:
    """The polynomial of degree < k through k points with different x: see field.py:interpolate.

    `rows` [4, k + 1] and `sums` [k] are overwritten.
    """
    k = len(x)
    master, slope, weights, power_sums = rows[0], rows[1, :k], rows[2, :k], rows[3, :k]
    _master(x, master)
    for j in range(k):
        power_sums[j] = _reduced(np.uint32(master[j + 1] * np.uint32(j + 1)))
    _horner(power_sums, x, slope)
    _invert(slope, power_sums, weights)
    _multiply(weights, y)
    for t in range(k):
        # At most 65,497 points have different x, so that the sum stays below 2^32.
        total = np.uint32(0)
        for i in range(k):
            total = np.uint32(total + weights[i])
            weights[i] = _reduced(np.uint32(weights[i] * x[i]))
        power_sums[t] = _reduced(total)
    sums[:] = 0
    for t in range(k):
        power_sum, upper = np.uint64(power_sums[t]), master[t + 1 :]
        for j in range(k - t):
            sums[j] += power_sum * np.uint64(upper[j])
    for j in range(k):
        out[j] = sums[j] % np.uint64(_PRIME)


@helper
def _injective_modulus(indices: Ints, seen: Bytes) -> int:
    """The largest m <= p that keeps the indices apart, or 0. `seen` is all zeros before and after."""
    if len(indices) > _PRIME:
        return 0
    for modulus in range(_PRIME, 0, -1):
        num_distinct = 0
        while num_distinct < len(indices) and not seen[indices[num_distinct] % modulus]:
            seen[indices[num_distinct] % modulus] = 1
            num_distinct += 1
        for i in range(num_distinct):
            seen[indices[i] % modulus] = 0
        if num_distinct == len(indices):
            return modulus
    return 0


@helper
def _num_distinct(values: Bits, seen: Bytes) -> int:
    """`seen` is all zeros before and after."""
    count = 0
    for value in values:
        count += not seen[value]
        seen[value] = 1
    for value in values:
        seen[value] = 0
    return count


@helper
def _count_errors(claimed: Bits, own: Bits, mask: int, counts: Ints, errors: Ints) -> None:
    """Fill one row of `counts` but for the distinct values; `errors` [128]: how often each mantissa error is there."""
    counts[:] = 0
    errors[:] = 0
    for i in range(len(own)):
        differing = np.int64(claimed[i] ^ own[i])
        counts[0] += (differing & 0x8000) != 0
        counts[1] += (differing & 0x7F80) != 0
        if differing & mask == 0:
            errors[abs(np.int64(claimed[i] & 0x7F) - np.int64(own[i] & 0x7F))] += 1
    for error in range(len(errors)):
        counts[2] += errors[error]
        counts[3] += errors[error] * error
    counts[4] = _ranked(errors, (counts[2] - 1) // 2)
    counts[5] = _ranked(errors, counts[2] // 2)


@helper
def _ranked(errors: Ints, rank: int) -> int:
    """The error with `rank` smaller or equal ones before it; the largest where there are no more."""
    before = 0
    for error in range(len(errors)):
        before += errors[error]
        if before > rank:
            return error
    return len(errors) - 1


@kernel("void(Array(int64, 2, 'C', readonly=True), Array(uint16, 2, 'C', readonly=True), int64[::1], uint16[:, ::1])")
def fit(indices: Ints, values: Bits, moduli: Ints, coefficients: Bits) -> None:
    """Fill `moduli` [C] and `coefficients` [C, k] for the points (indices mod m, values), both [C, k].

    The modulus comes out as 0 where none keeps the indices of a row apart.
    """
    k = indices.shape[1]
    seen = np.zeros(_PATTERNS, dtype=np.uint8)
    x, y = np.empty(k, dtype=np.uint32), np.empty(k, dtype=np.uint32)
    rows, sums = np.empty((4, k + 1), dtype=np.uint32), np.empty(k, dtype=np.uint64)
    for row in range(len(indices)):
        moduli[row] = _injective_modulus(indices[row], seen)
        if moduli[row] == 0:
            continue
        for i in range(k):
            x[i] = indices[row, i] % moduli[row]
            y[i] = _reduced(np.uint32(values[row, i]))
        _interpolate(x, y, rows, sums, coefficients[row])


@kernel(
    "void(Array(int64, 1, 'C', readonly=True), Array(uint16, 2, 'C', readonly=True),"
    " Array(int64, 2, 'C', readonly=True), Array(uint16, 2, 'C', readonly=True), int64, int64[:, ::1], int64[:, ::1])"
)
def compare(moduli: Ints, coefficients: Bits, indices: Ints, own: Bits, mask: int, counts: Ints, errors: Ints) -> None:
    """Fill `counts` [C, 8] and `errors` [C, 128] with what `compare.py:Comparison` says, from residues [C, n].

    Mantissas are compared of values that agree in the bits of `mask`.
    """
    k = indices.shape[1]
    seen = np.zeros(_PATTERNS, dtype=np.uint8)
    x, values = np.empty(k, dtype=np.uint32), np.empty(k, dtype=np.uint32)
    polynomial, claimed = np.empty(coefficients.shape[1], dtype=np.uint32), np.empty(k, dtype=np.uint16)
    for row in range(len(indices)):
        for i in range(k):
            x[i] = (indices[row, i] % moduli[row]) % _PRIME
        polynomial[:] = coefficients[row]
        _horner(polynomial, x, values)
        claimed[:] = values
        _count_errors(claimed, own[row], mask, counts[row], errors[row])
        counts[row, 6] = _num_distinct(claimed, seen)
        counts[row, 7] = _num_distinct(own[row], seen)
