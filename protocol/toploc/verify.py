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
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from protocol.errors import MalformedProof, ProofpoolError
from protocol.toploc.activations import Activations
from protocol.toploc.chunks import published_pieces
from protocol.toploc.compare import EXPONENT
from protocol.toploc.field import PRIME
from protocol.toploc.modulus import Indices
from protocol.toploc.paths import Claims, choose, path
from protocol.toploc.proof import ProofPoly, read_words
from protocol.toploc.topk import BF16_INFINITY, Ties

NO_MATCH = 2.0**64
"""Mean and median where no exponent agrees, as in the published library."""

_TODO = "reject the proofs"
_Text = TypeVar("_Text", bytes, str)
_Read = TypeVar("_Read")


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
    claims = _claims([_words(poly) for poly in proofs])
    return _verify(activations, claims, decode_batching_size, topk, skip_prefill, ties)


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
    claims = _claims([_read(read_words, proof) for proof in proofs])
    return _verify(activations, claims, decode_batching_size, topk, skip_prefill, ties)


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


def _read(reader: Callable[[_Text], _Read], proof: _Text) -> _Read:
    try:
        return reader(proof)
    except ValueError as error:
        raise MalformedProof("a proof can't be read", str(error), _TODO) from error


def _words(poly: ProofPoly) -> Indices:
    """Modulus and coefficients, [1 + n]."""
    return np.array([poly.modulus, *poly.coeffs], dtype=np.int64)


def _claims(proofs: Sequence[npt.NDArray[Any]]) -> Claims:
    """Proofs of any length; the missing coefficients of a shorter one are zeros. Refuses null proofs."""
    if not all(len(words) > 1 and words[0] > 0 for words in proofs):
        raise MalformedProof("a proof is null", "its modulus is 0, or it has no coefficients", _TODO)
    table = np.zeros((len(proofs), max((len(words) for words in proofs), default=1)), dtype=np.int64)
    for row, words in zip(table, proofs, strict=True):
        row[: len(words)] = words
    return Claims(table[:, 0].copy(), (table[:, 1:] % PRIME).astype(np.uint16))


def _verify(
    activations: Sequence[Activations] | Activations,
    claims: Claims,
    batch: int,
    topk: int,
    skip_prefill: bool,
    ties: Ties,
) -> list[VerificationResult]:
    pieces, infinity = published_pieces(activations, batch, skip_prefill)
    if infinity != BF16_INFINITY:
        raise ProofpoolError("activations have the wrong type", "float16, not bfloat16", "run the model in bfloat16")
    own = choose(pieces, topk, ties, infinity)
    if len(claims.moduli) != len(own.indices):
        why = f"{len(claims.moduli)} for {len(own.indices)} chunks"
        raise MalformedProof("there isn't one proof a chunk", why, _TODO)
    found = path().compare(claims, own, EXPONENT)
    columns = found.exp_mismatches, found.means(NO_MATCH), found.medians(NO_MATCH)
    return [VerificationResult(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
