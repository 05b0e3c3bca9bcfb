"""What one forward pass over the audited rows gave, a number a token: all that the model-based checks look at.

In: slices of hidden states and logits (`checks/prefill.py`). Out: `Measurements`; states and logits are dropped
slice by slice, so memory stays bounded whatever the length and the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.checks.case import Case
from protocol.errors import ProofpoolError

Floats = npt.NDArray[np.float64]

NO_MATCH = 128.0
"""Mean mantissa difference where no value agrees in sign and exponent: one more than mantissas can differ by."""


@dataclass(frozen=True)
class ProofErrors:
    """Proofs against the verifier's own hidden states, pooled over chunks.

    `num_values` were compared; `num_mismatches` of them differ in sign or exponent; `mantissa_error` is the sum of
    7-bit mantissa differences over the others; `num_degenerate` proofs say nothing.
    """

    num_chunks: int = 0
    num_values: int = 0
    num_mismatches: int = 0
    mantissa_error: int = 0
    num_degenerate: int = 0

    @property
    def mismatch_share(self) -> float:
        return self.num_mismatches / self.num_values if self.num_values else 1.0

    @property
    def mantissa_mean(self) -> float:
        num_matched = self.num_values - self.num_mismatches
        return self.mantissa_error / num_matched if num_matched else NO_MATCH

    def __add__(self, other: ProofErrors) -> ProofErrors:
        return ProofErrors(
            self.num_chunks + other.num_chunks,
            self.num_values + other.num_values,
            self.num_mismatches + other.num_mismatches,
            self.mantissa_error + other.mantissa_error,
            self.num_degenerate + other.num_degenerate,
        )


@dataclass(frozen=True, eq=False)
class Measurements:
    """Aligned arrays over all N output tokens of a submission, rollouts in order, and R rollouts.

    `margins` float64 [N]: clipped distance to the token that the noise draws, 0 for the drawn one itself;
    `logprobs` float64 [N]: the model's log-prob of the claimed token (nats, after temperature);
    `eos_probabilities` float64 [R]: P(EOS) where the last token was sampled; `proofs`: TOPLOC, pooled.
    """

    margins: Floats
    logprobs: Floats
    eos_probabilities: Floats
    proofs: ProofErrors

    @classmethod
    def joined(cls, parts: Sequence[Measurements]) -> Measurements:
        """The measurements of consecutive slices as one."""
        return cls(
            margins=np.concatenate([part.margins for part in parts]),
            logprobs=np.concatenate([part.logprobs for part in parts]),
            eos_probabilities=np.concatenate([part.eos_probabilities for part in parts]),
            proofs=sum((part.proofs for part in parts), ProofErrors()),
        )


def measurements_of(case: Case) -> Measurements:
    """A case's measurements; raises where the model hasn't run, which is a fault of the pipeline's order."""
    if case.measurements is None:
        raise ProofpoolError("a check needs the model and it hasn't run", todo="run checks/prefill.py first")
    return case.measurements
