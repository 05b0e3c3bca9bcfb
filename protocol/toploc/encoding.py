"""Proofs as bytes, and the strict reader: one proof has one spelling.

    proof            m, c0, …, c(k-1) as big-endian uint16: 2 + 2k bytes (258 at k = 128)
    `proofs` column  the proofs of a rollout's chunks in order, one after the other, nothing between

In: bytes from anybody. Out: a `ProofSet`, or MalformedProof, and never another exception. numpy
only: a process without torch can check the form of what it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.errors import MalformedProof
from protocol.toploc.field import PRIME
from protocol.toploc.modulus import Indices, least_modulus

Residues = npt.NDArray[np.uint16]
"""Coefficients, each below 65497."""

CHUNK_ROWS = 32
TOPK = 128

_TODO = "build proofs with protocol.toploc, over exactly one row per output token"


@dataclass(frozen=True)
class ProofSet:
    """Well-formed proofs of one rollout: `moduli` int64 [C], `coefficients` uint16 [C, k], ascending.

    Example: `parse_proofs(b"".join(proofs), num_rows=40)` has two chunks, of 32 and of 8 rows.
    """

    moduli: Indices
    coefficients: Residues

    def __len__(self) -> int:
        return len(self.moduli)


def num_chunks(num_rows: int, chunk_rows: int = CHUNK_ROWS) -> int:
    """Proofs of a rollout with `num_rows` rows (one an output token)."""
    return -(-num_rows // chunk_rows)


def proof_bytes(topk: int = TOPK) -> int:
    """Length of one proof."""
    return 2 + 2 * topk


def encode_proofs(moduli: Indices, coefficients: Residues) -> list[bytes]:
    """The bytes of each proof, from `moduli` [C] and `coefficients` [C, k]."""
    words = np.empty((len(moduli), 1 + coefficients.shape[1]), dtype=">u2")
    words[:, 0], words[:, 1:] = moduli, coefficients
    data, size = words.tobytes(), 2 * words.shape[1]
    return [data[start : start + size] for start in range(0, len(data), size)]


def parse_proofs(
    data: bytes, num_rows: int, *, chunk_rows: int = CHUNK_ROWS, topk: int = TOPK, hidden_size: int | None = None
) -> ProofSet:
    """Read a rollout's `proofs` column strictly.

    `num_rows` is the number of output tokens. Raises MalformedProof unless there are exactly
    ceil(num_rows / chunk_rows) proofs of 2 + 2k bytes, each with k <= m <= 65497 and every
    coefficient below 65497. With `hidden_size`, m must also be one that an honest chunk of that many
    values can have (`least_modulus`): 65497 itself wherever the chunk holds no more values than that.
    """
    if num_rows < 1:
        raise MalformedProof("a rollout without rows has no proofs", f"{num_rows} rows", _TODO)
    expected = num_chunks(num_rows, chunk_rows) * proof_bytes(topk)
    if len(data) != expected:
        raise MalformedProof("the proofs have the wrong length", f"{len(data)} bytes, not {expected}", _TODO)
    words = np.frombuffer(data, dtype=">u2").reshape(-1, 1 + topk)
    moduli, coefficients = words[:, 0].astype(np.int64), words[:, 1:].astype(np.uint16)
    _check_moduli(moduli, _least_moduli(num_rows, chunk_rows, topk, hidden_size))
    if (coefficients >= PRIME).any():
        chunk, place = (int(i) for i in np.argwhere(coefficients >= PRIME)[0])
        raise MalformedProof("a coefficient isn't canonical", f"c{place} of proof {chunk} is not below {PRIME}", _TODO)
    return ProofSet(moduli, coefficients)


def _least_moduli(num_rows: int, chunk_rows: int, topk: int, hidden_size: int | None) -> Indices:
    least = np.full(num_chunks(num_rows, chunk_rows), topk, dtype=np.int64)
    if hidden_size is not None:
        last_rows = num_rows - (len(least) - 1) * chunk_rows
        least[:-1] = least_modulus(chunk_rows * hidden_size, topk)
        least[-1] = least_modulus(last_rows * hidden_size, topk)
    return least


def _check_moduli(moduli: Indices, least: Indices) -> None:
    wrong: npt.NDArray[np.bool_] = (moduli < least) | (moduli > PRIME)
    if not wrong.any():
        return
    chunk = int(np.flatnonzero(wrong)[0])
    if moduli[chunk] == 0:
        raise MalformedProof("a proof is null", f"proof {chunk} has modulus 0", "find the error that the prover hid")
    why = f"modulus {moduli[chunk]} of proof {chunk} is not within {least[chunk]} to {PRIME}"
    raise MalformedProof("a proof has an impossible modulus", why, _TODO)
