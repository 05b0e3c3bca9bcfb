"""What verdicts are based on: strict form, signs compared too, pooled over a submission.

In: for each audited rollout the verifier's own hidden states [T, H] and the `proofs` column as it
came. Out: a `SubmissionResult`, or MalformedProof naming the rollout. Limits are not applied here:
they are rules (`toploc_exp_mismatch_share`, `toploc_mantissa_mean`).

A proof says nothing if its values don't depend on the indices, and loose limits can let it pass: a
constant takes 4 bytes (its length gives it away), or 258 with zeros for coefficients. Two facts about
each chunk show such a proof, and `is_degenerate` is true if either does. Measured on 108,000 honest
chunks (k = 128; four distributions; 1, 8 and 32 rows of 128; noise 0, 0.4 % and 3 %; docs/toploc.md):
- `degree`, of the claimed polynomial; below k - 4 is degenerate. Leading coefficients of an honest one
  are as good as uniform, so that four zeros in a row have a chance of 65497^-4 = 5e-20 a chunk.
  Measured: one zero in 2 chunks (1.6 expected), never two.
- `num_distinct`, values that it takes at the verifier's indices; under half as many as the verifier's
  own states have there is degenerate. Measured: never below 0.78 times as many; a constant has 1/60.
Chunks with under 8 different values of the verifier's own aren't judged. A near-constant made for *all*
indices needs a small modulus (m = k), which `parse_proofs` refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from protocol.errors import MalformedProof, ProofpoolError
from protocol.toploc.activations import Activations, require_finite
from protocol.toploc.chunks import choose_in_rollouts
from protocol.toploc.compare import EXPONENT, SIGN, Comparison, Flags, pooled_median
from protocol.toploc.encoding import CHUNK_ROWS, TOPK, ProofSet, Residues, num_chunks, parse_proofs
from protocol.toploc.modulus import Indices
from protocol.toploc.paths import Claims, path
from protocol.toploc.pooled import NO_MATCH, ChunkResult, ProofErrors
from protocol.toploc.topk import Ties

_LEADING = 4
_FEW_VALUES = 8
"""Below this many different values of its own, the verifier can't call a proof degenerate."""


@dataclass(frozen=True)
class SubmissionResult:
    """All chunks of the audited rollouts, and the same statistics over all their values.

    Example: `result.mismatch_share > rules.thresholds.toploc_exp_mismatch_share.reject`.
    """

    chunks: tuple[ChunkResult, ...]
    mantissa_median: float

    @cached_property
    def pooled(self) -> ProofErrors:
        return ProofErrors.of(self.chunks)

    @property
    def mismatch_share(self) -> float:
        """Of values whose sign or exponent differs, 0 to 1."""
        return self.pooled.mismatch_share

    @property
    def mantissa_mean(self) -> float:
        """Mean |difference| of the mantissas that are compared, 0 to 127, or 128 if none is."""
        return self.pooled.mantissa_mean

    @property
    def num_degenerate(self) -> int:
        """Chunks whose proof says nothing."""
        return self.pooled.num_degenerate


def verify_rollouts(
    hidden: Sequence[Activations],
    proofs: Sequence[bytes],
    *,
    chunk_rows: int = CHUNK_ROWS,
    topk: int = TOPK,
    ties: Ties = "lowest",
) -> SubmissionResult:
    """Compare the `proofs` columns with the verifier's own bf16 states [T, H] of the same rollouts.

    Raises MalformedProof for a column that isn't canonical, ProofpoolError for states that are
    wrongly shaped or typed, or not finite: then the verifier is at fault, not the proof.
    """
    if not len(hidden) == len(proofs) > 0:
        why = f"{len(proofs)} columns of proofs, {len(hidden)} rollouts"
        raise ProofpoolError("there is nothing to verify, or it doesn't match", why, "pass both for each rollout")
    own = choose_in_rollouts(hidden, chunk_rows, topk, ties)
    require_finite(own.values)
    claims = _parse_all(proofs, hidden, chunk_rows, topk)
    found = path().compare(claims, own, SIGN | EXPONENT)
    labels = [
        (number, chunk) for number, rows in enumerate(hidden) for chunk in range(num_chunks(len(rows), chunk_rows))
    ]
    median = pooled_median(found.errors.sum(axis=0), NO_MATCH)
    chunks = _chunk_results(labels, claims.coefficients, found, topk)
    return SubmissionResult(tuple(chunks), median)


def _parse_all(columns: Sequence[bytes], rollouts: Sequence[Activations], chunk_rows: int, topk: int) -> Claims:
    sets: list[ProofSet] = []
    for number, (column, rows) in enumerate(zip(columns, rollouts, strict=True)):
        try:
            sets.append(parse_proofs(column, len(rows), chunk_rows=chunk_rows, topk=topk, hidden_size=rows.shape[1]))
        except MalformedProof as error:
            raise MalformedProof(error.what, f"rollout {number}: {error.why}", error.todo) from error
    return Claims(np.concatenate([s.moduli for s in sets]), np.concatenate([s.coefficients for s in sets]))


def _chunk_results(
    labels: list[tuple[int, int]], coefficients: Residues, found: Comparison, topk: int
) -> Iterator[ChunkResult]:
    degrees = _degrees(coefficients)
    columns = (
        found.sign_mismatches,
        found.exp_mismatches,
        topk - found.num_compared,
        found.error_sum,
        found.means(NO_MATCH),
        found.medians(NO_MATCH),
        degrees,
        found.num_claimed,
        _is_degenerate(degrees, found, topk),
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return (ChunkResult(*label, topk, *row) for label, row in zip(labels, rows, strict=True))


def _degrees(coefficients: Residues) -> Indices:
    """Degree of each row's polynomial; 0 for the zero polynomial too."""
    powers = np.arange(coefficients.shape[1])
    degrees: Indices = np.where(coefficients != 0, powers, 0).max(axis=1)
    return degrees


def _is_degenerate(degrees: Indices, found: Comparison, k: int) -> Flags:
    says_nothing = (degrees < k - _LEADING) | (2 * found.num_claimed < found.num_own)
    flags: Flags = (found.num_own >= _FEW_VALUES) & says_nothing
    return flags
