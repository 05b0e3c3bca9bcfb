"""Claimed values against the verifier's own, field by field of a bf16: what a comparison says of each chunk.

In: counts per chunk, from plain.py or fast.py. Out: which signs and exponents differ, how far mantissas are
apart, and their mean and median.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.toploc.modulus import Indices

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

SIGN, EXPONENT, MANTISSA = 0x8000, 0x7F80, 0x7F
NUM_MANTISSAS = 128
NUM_COUNTS = 8


@dataclass(frozen=True)
class Comparison:
    """`counts` int64 [C, 8], read through the properties, and `errors` int64 [C, 128].

    `errors` says how often each |mantissa difference| occurs among the values that are compared: those
    that agree in the fields asked for.
    """

    counts: Indices
    errors: Indices

    @property
    def sign_mismatches(self) -> Indices:
        return self.counts[:, 0]

    @property
    def exp_mismatches(self) -> Indices:
        return self.counts[:, 1]

    @property
    def num_compared(self) -> Indices:
        return self.counts[:, 2]

    @property
    def error_sum(self) -> Indices:
        return self.counts[:, 3]

    @property
    def num_claimed(self) -> Indices:
        """Different values that the polynomial takes at the verifier's indices."""
        return self.counts[:, 6]

    @property
    def num_own(self) -> Indices:
        """Different values among the verifier's own."""
        return self.counts[:, 7]

    def means(self, if_none: float) -> Floats:
        """Mean mantissa error [C], `if_none` where nothing is compared."""
        mean = self.error_sum / np.maximum(self.num_compared, 1)
        return np.where(self.num_compared > 0, mean, if_none)

    def medians(self, if_none: float) -> Floats:
        """Median [C]; of an even number the mean of the two in the middle. `if_none` where nothing is compared."""
        return np.where(self.num_compared > 0, (self.counts[:, 4] + self.counts[:, 5]) / 2, if_none)


def pooled_median(errors: Indices, if_none: float) -> float:
    """Median of errors that occur `errors` [128] times each; of an even number the mean of the two in the middle."""
    reached = np.cumsum(errors)
    total = int(reached[-1])
    lower, upper = np.searchsorted(reached, [(total - 1) // 2, total // 2], "right").tolist()
    return (lower + upper) / 2 if total else if_none
