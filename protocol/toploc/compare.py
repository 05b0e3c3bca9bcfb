"""Claimed values against the verifier's own, field by field of a bf16.

In: for each chunk the polynomial, and the indices and bit patterns that the verifier chose itself.
Out: which signs and exponents differ, how far mantissas are apart, and their mean and median.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.toploc.field import Field, evaluate, to_field
from protocol.toploc.modulus import Indices
from protocol.toploc.topk import Bits

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Arrays [C, n], one row a chunk: `claimed` patterns, where fields differ, and |mantissa difference|."""

    claimed: Indices
    sign_differs: Flags
    exp_differs: Flags
    mantissa_error: Indices


def compare(moduli: Indices, coefficients: Field, indices: Indices, own: Bits) -> Comparison:
    """Compare `own` [C, n] with the polynomials' values at `indices` [C, n], reduced by `moduli` [C] >= 1."""
    claimed = evaluate(coefficients, to_field(indices % moduli[:, None])).astype(np.int64)
    differing = claimed ^ own
    return Comparison(
        claimed,
        sign_differs=(differing & 0x8000) != 0,
        exp_differs=(differing & 0x7F80) != 0,
        mantissa_error=np.abs((claimed & 0x7F) - (own & 0x7F).astype(np.int64)),
    )


def mean_and_median(errors: Indices, counted: Flags, if_none: float) -> tuple[Floats, Floats]:
    """Of each row [C, n]: mean and median over what is `counted`, or `if_none` where nothing is.

    The median of an even number is the mean of the two in the middle.
    """
    num = counted.sum(axis=1)
    ordered = np.sort(np.where(counted, errors, np.iinfo(np.int64).max), axis=1)
    rows, last = np.arange(len(errors)), np.maximum(num - 1, 0)
    middle = ordered[rows, last // 2] / 2 + ordered[rows, (last + 1) // 2] / 2
    mean = np.where(counted, errors, 0).sum(axis=1) / np.maximum(num, 1)
    return np.where(num > 0, mean, if_none), np.where(num > 0, middle, if_none)


def num_distinct(values: npt.NDArray[np.int64] | Bits) -> Indices:
    """How many different values each row [C, n] holds."""
    ordered = np.sort(values, axis=1)
    counts: Indices = (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1) + 1
    return counts
