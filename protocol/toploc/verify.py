"""Verification by the published library's calls: statistics a proof, no judgement.

In: bf16 activations, split as for `build_proofs`, and proofs. Out: a `VerificationResult` each. It
differs from the library where that is at fault: indices are always reduced by the modulus, the
median of an even number is always the mean of the two in the middle, a wrong number of proofs or a
proof without modulus or coefficients raises MalformedProof, and nothing kills the process. Signs
aren't compared, and coefficients may be more than k and beyond the prime, as there. What verdicts
are based on: strict.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from protocol.errors import MalformedProof, ProofpoolError
from protocol.toploc.activations import Activations
from protocol.toploc.chunks import flat_chunks, group_equal
from protocol.toploc.compare import compare, mean_and_median
from protocol.toploc.field import to_field
from protocol.toploc.proof import ProofPoly
from protocol.toploc.topk import BF16_INFINITY, Bits, Ties, select

NO_MATCH = 2.0**64
"""Mean and median where no exponent agrees, as in the published library."""

_TODO = "reject the proofs"
_Text = TypeVar("_Text", bytes, str)


@dataclass(frozen=True, repr=False)
class VerificationResult:
    """Of the k values of one chunk: exponents that differ, and the mantissas' distance where they agree."""

    exp_mismatches: int
    mant_err_mean: float
    mant_err_median: float

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"VerificationResult[{fields}]"


def verify_proofs(
    activations: Sequence[Activations] | Activations,
    proofs: Sequence[ProofPoly],
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
    *,
    ties: Ties = "lowest",
) -> list[VerificationResult]:
    """One result a chunk. Raises MalformedProof for proofs that can't be evaluated or are too many or few."""
    chunks, infinity = flat_chunks(activations, decode_batching_size, skip_prefill)
    if infinity != BF16_INFINITY:
        raise ProofpoolError("activations have the wrong type", "float16, not bfloat16", "run the model in bfloat16")
    if len(proofs) != len(chunks):
        raise MalformedProof("there isn't one proof a chunk", f"{len(proofs)} for {len(chunks)} chunks", _TODO)
    results: dict[int, VerificationResult] = {}
    for numbers, bits in group_equal(chunks):
        results.update(zip(numbers.tolist(), _verify([proofs[i] for i in numbers], bits, topk, ties), strict=True))
    return [results[number] for number in range(len(chunks))]


def verify_proofs_bytes(
    activations: Sequence[Activations] | Activations,
    proofs: Sequence[bytes],
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
    *,
    ties: Ties = "lowest",
) -> list[VerificationResult]:
    """`verify_proofs` of proofs in bytes, read as leniently as `ProofPoly.from_bytes` does."""
    polys = [_read(ProofPoly.from_bytes, proof) for proof in proofs]
    return verify_proofs(activations, polys, decode_batching_size, topk, skip_prefill, ties=ties)


def verify_proofs_base64(
    activations: Sequence[Activations] | Activations,
    proofs: Sequence[str],
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
    *,
    ties: Ties = "lowest",
) -> list[VerificationResult]:
    """`verify_proofs` of proofs in base64, read as leniently as `ProofPoly.from_base64` does."""
    polys = [_read(ProofPoly.from_base64, proof) for proof in proofs]
    return verify_proofs(activations, polys, decode_batching_size, topk, skip_prefill, ties=ties)


def _read(reader: Callable[[_Text], ProofPoly], proof: _Text) -> ProofPoly:
    try:
        return reader(proof)
    except ValueError as error:
        raise MalformedProof("a proof can't be read", str(error), _TODO) from error


def _verify(proofs: Sequence[ProofPoly], bits: Bits, topk: int, ties: Ties) -> list[VerificationResult]:
    if not all(poly.modulus > 0 and poly.coeffs for poly in proofs):
        raise MalformedProof("a proof is null", "its modulus is 0, or it has no coefficients", _TODO)
    coefficients = np.zeros((len(proofs), max(len(poly) for poly in proofs)))
    for row, poly in zip(coefficients, proofs, strict=True):
        row[: len(poly)] = to_field(poly.coeffs)
    moduli = np.array([poly.modulus for poly in proofs], dtype=np.int64)
    indices = select(bits, topk, ties)
    found = compare(moduli, coefficients, indices, np.take_along_axis(bits, indices, axis=1))
    means, medians = mean_and_median(found.mantissa_error, ~found.exp_differs, NO_MATCH)
    mismatches = found.exp_differs.sum(axis=1)
    rows = zip(mismatches.tolist(), means.tolist(), medians.tolist(), strict=True)
    return [VerificationResult(*row) for row in rows]
