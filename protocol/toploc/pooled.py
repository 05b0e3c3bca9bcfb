"""What verifying gives: a result a chunk, and chunk results pooled, the statistics that limits are about.

In: comparisons of `protocol/toploc/strict.py`. Out: `ChunkResult`, `ProofErrors`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

NO_MATCH = 128.0
"""Mean and median where no value agrees in sign and exponent: one more than mantissas can differ by."""


@dataclass(frozen=True)
class ChunkResult:
    """One chunk. `mismatches` counts values whose sign or exponent differs; mantissas are of the others.

    `mantissa_error` is the sum of 7-bit mantissa differences.
    """

    rollout: int
    chunk: int
    num_values: int
    sign_mismatches: int
    exp_mismatches: int
    mismatches: int
    mantissa_error: int
    mantissa_mean: float
    mantissa_median: float
    degree: int
    num_distinct: int
    is_degenerate: bool


@dataclass(frozen=True)
class ProofErrors:
    """Proofs against the verifier's own hidden states.

    `num_values` were compared; `num_mismatches` of them differ in sign or exponent; `mantissa_error` is the sum of
    7-bit mantissa differences over the others; `num_degenerate` proofs say nothing.
    """

    num_chunks: int = 0
    num_values: int = 0
    num_mismatches: int = 0
    mantissa_error: int = 0
    num_degenerate: int = 0

    @classmethod
    def of(cls, chunks: Iterable[ChunkResult]) -> ProofErrors:
        """All values of all chunks count alike."""
        each = list(chunks)
        return cls(
            num_chunks=len(each),
            num_values=sum(chunk.num_values for chunk in each),
            num_mismatches=sum(chunk.mismatches for chunk in each),
            mantissa_error=sum(chunk.mantissa_error for chunk in each),
            num_degenerate=sum(chunk.is_degenerate for chunk in each),
        )

    @property
    def mismatch_share(self) -> float:
        return self.num_mismatches / self.num_values if self.num_values else 1.0

    @property
    def mantissa_mean(self) -> float:
        num_matched = self.num_values - self.num_mismatches
        return self.mantissa_error / num_matched if num_matched else NO_MATCH
