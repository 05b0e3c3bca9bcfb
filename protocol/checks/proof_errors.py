"""TOPLOC results pooled over chunks: the statistics that limits are about.

In: chunk results of `protocol/toploc/strict.py`. Out: `ProofErrors`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protocol.toploc.strict import ChunkResult

NO_MATCH = 128.0
"""Mean mantissa difference where no value agrees in sign and exponent: one more than mantissas can differ by."""


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
        """Chunks pooled; each one's mean is over its values that match, so the sum is a whole number again."""
        each = list(chunks)
        return cls(
            num_chunks=len(each),
            num_values=sum(chunk.num_values for chunk in each),
            num_mismatches=sum(chunk.mismatches for chunk in each),
            mantissa_error=sum(round(c.mantissa_mean * (c.num_values - c.mismatches)) for c in each),
            num_degenerate=sum(chunk.is_degenerate for chunk in each),
        )

    @property
    def mismatch_share(self) -> float:
        return self.num_mismatches / self.num_values if self.num_values else 1.0

    @property
    def mantissa_mean(self) -> float:
        num_matched = self.num_values - self.num_mismatches
        return self.mantissa_error / num_matched if num_matched else NO_MATCH
