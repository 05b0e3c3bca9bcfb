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
Words = npt.NDArray[np.integer[Any]]
"""Moduli and coefficients of proofs, [C, 1 + n]."""
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
    claims = _claims(_padded([_words(poly) for poly in proofs]))
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
    claims = _claims(_table(proofs))
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


def _table(proofs: Sequence[bytes]) -> Words:
    """The words of each, [C, 1 + n]: of all at once where they are equally long, as they nearly always are."""
    lengths = set(map(len, proofs))
    if len(lengths) != 1 or any(length % 2 or length < 4 for length in lengths):
        return _padded([_read(read_words, proof) for proof in proofs])
    return np.frombuffer(b"".join(proofs), dtype=">u2").reshape(len(proofs), -1)


def _words(poly: ProofPoly) -> Indices:
    """Modulus and coefficients, [1 + n]."""
    return np.array([poly.modulus, *poly.coeffs], dtype=np.int64)


def _padded(proofs: Sequence[npt.NDArray[Any]]) -> Words:
    """The missing coefficients of a shorter one are zeros. Refuses one without any."""
    if not all(len(words) > 1 for words in proofs):
        raise _null()
    table = np.zeros((len(proofs), max((len(words) for words in proofs), default=2)), dtype=np.int64)
    for row, words in zip(table, proofs, strict=True):
        row[: len(words)] = words
    return table


def _claims(table: Words) -> Claims:
    """Refuses null proofs."""
    if not (table[:, 0] > 0).all():
        raise _null()
    return Claims(table[:, 0].astype(np.int64), (table[:, 1:] % PRIME).astype(np.uint16))


def _null() -> MalformedProof:
    return MalformedProof("a proof is null", "its modulus is 0, or it has no coefficients", _TODO)


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
