"""The modulus of a proof: the largest m <= 65497 that keeps the chosen indices distinct.

In: indices [C, k] of the chosen values. Out: m [C]. A chunk of at most 65,497 elements always has
m = 65497; in a larger one two of k indices collide now and then, and m steps down by one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.toploc.field import PRIME

Indices = npt.NDArray[np.int64]

_HALF = 2**15
_FEW = 512


def injective_moduli(indices: Indices) -> Indices:
    """The modulus of each row, int64 [C]. Raises ValueError where a row holds the same index twice."""
    moduli = np.full(len(indices), PRIME, dtype=np.int64)
    for row in np.flatnonzero(~_distinct(np.fmod(indices, PRIME))):
        moduli[row] = _search(indices[row])
    return moduli


def least_modulus(num_elements: int, topk: int) -> int:
    """The least modulus that an honest chunk of `num_elements` values can have.

    A small modulus is a forger's tool: at m = k a polynomial of full degree can give any value it
    likes at *every* index, a near-constant included. Up to 65,497 elements m is 65497, without
    exception. Beyond, each candidate collides with probability 1 - exp(-k^2 / 2m) or so: 0.12 at
    k = 128, 0.86 to 0.98 at k = 512, so that the chance of 2^15 collisions in a row is nil. And of
    2^15 residues a polynomial through 512 points rules 1.6 %. For k > 512 only m >= k is certain.
    """
    if num_elements <= PRIME:
        return PRIME
    return _HALF if topk <= _FEW else topk


def _search(indices: Indices) -> int:
    for modulus in range(PRIME, 0, -1) if len(indices) <= PRIME else ():
        # The remainder keeps the sign of the index, as C++ does; no index of a chunk is negative.
        if _distinct(np.fmod(indices, modulus)[None])[0]:
            return modulus
    raise ValueError("no modulus keeps the indices apart: they are too many, or one of them is there twice")


def _distinct(rows: Indices) -> npt.NDArray[np.bool_]:
    ordered = np.sort(rows, axis=1)
    distinct: npt.NDArray[np.bool_] = (ordered[:, 1:] != ordered[:, :-1]).all(axis=1)
    return distinct
