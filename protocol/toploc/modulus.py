"""The modulus of a proof: the largest m <= 65497 that keeps the chosen indices distinct.

In: indices [C, k] of the chosen values. Out: m [C]. A chunk of at most 65,497 elements always has
m = 65497; in a larger one two of k indices collide now and then, and m steps down by one.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from protocol.toploc.field import PRIME

Indices = npt.NDArray[np.int64]

_CHANCE = 1e-18


def injective_moduli(indices: Indices) -> Indices:
    """The modulus of each row, int64 [C]. Raises ValueError where a row holds the same index twice."""
    moduli = np.full(len(indices), PRIME, dtype=np.int64)
    for row in np.flatnonzero(~_distinct(np.fmod(indices, PRIME))):
        moduli[row] = _search(indices[row])
    return moduli


def least_modulus(num_elements: int, topk: int) -> int:
    """The least modulus that an honest chunk of `num_elements` values can be expected to have.

    A small modulus is a forger's tool: at m = k a polynomial of full degree can give any value it
    likes at *every* index, a near-constant included. Up to 65,497 elements m is 65497, without
    exception. Beyond, each candidate collides with probability q <= 1 - exp(-k^2 / 2m) (0.12 at
    k = 128), and the number of steps allowed here is passed by an honest chunk with q^steps <= 1e-18.
    """
    if num_elements <= PRIME:
        return PRIME
    collision = -math.expm1(-(topk**2) / PRIME)
    steps = PRIME if collision >= 1.0 else math.ceil(math.log(_CHANCE) / math.log(collision))
    return max(topk, PRIME - steps)


def _search(indices: Indices) -> int:
    for modulus in range(PRIME, 0, -1):
        # The remainder keeps the sign of the index, as C++ does; no index of a chunk is negative.
        if _distinct(np.fmod(indices, modulus)[None])[0]:
            return modulus
    raise ValueError("no modulus keeps the indices apart: one of them is there twice")


def _distinct(rows: Indices) -> npt.NDArray[np.bool_]:
    ordered = np.sort(rows, axis=1)
    distinct: npt.NDArray[np.bool_] = (ordered[:, 1:] != ordered[:, :-1]).all(axis=1)
    return distinct
