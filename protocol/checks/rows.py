"""What a verifier wants to know of each claimed token, from the row of logits that it was drawn from.

In: logits [N, V], claimed tokens, noise keys. Out: `RowStatistics`. Plain numpy, a block of rows at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from protocol.rules import SamplingRules
from protocol.sampling import Float64Array, Keys, Logits, Tokens, gumbel_noise, keeps_all, kept_tokens

TINY = 1e-4
"""A chosen token of less probability than this counts as implausible."""
BLOCK_VALUES = 1 << 18


@dataclass(frozen=True, eq=False)
class RowStatistics:
    """Arrays [N], float64 but for `drawn`; probabilities after temperature, before top_k and top_p, logarithms in nats.

    `margins`: in [0, clip], how far the claimed token's noised logit lies below the row's best; 0 is the drawn token
    itself, `clip` one outside the kept set. `drawn`: int64, the token that the noise draws. `runner_up_margins`: the
    same distance of the second best token, so how near to a tie the row is. `logprobs`, `drawn_logprobs`: of the
    claimed and of the drawn token. `entropies`: of the distribution, the expected −logprob. `eos_probabilities`:
    P(EOS). `tiny_probabilities`: the probability of choosing a token of less than TINY.
    """

    margins: Float64Array
    drawn: Tokens
    runner_up_margins: Float64Array
    logprobs: Float64Array
    drawn_logprobs: Float64Array
    entropies: Float64Array
    eos_probabilities: Float64Array
    tiny_probabilities: Float64Array

    @classmethod
    def joined(cls, parts: Sequence[RowStatistics]) -> RowStatistics:
        """The statistics of consecutive blocks of rows as one; there is at least one."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def measure_rows(
    logits: Logits, claimed: Tokens, keys: Keys, sampling: SamplingRules, *, clip: float, eos_ids: Sequence[int] = ()
) -> RowStatistics:
    """Every statistic of the rows of a block. `claimed` int64 [N] are ids of the vocabulary."""
    size = max(1, BLOCK_VALUES // logits.shape[1])
    starts = range(0, len(logits), size)
    blocks = [slice(start, start + size) for start in starts]
    return RowStatistics.joined(
        [_measured(logits[rows], claimed[rows], keys[rows], sampling, clip, eos_ids) for rows in blocks]
    )


def _measured(
    logits: Logits, claimed: Tokens, keys: Keys, sampling: SamplingRules, clip: float, eos_ids: Sequence[int]
) -> RowStatistics:
    scaled, each = logits.astype(np.float64) / sampling.temperature, np.arange(len(logits))
    top = scaled.max(axis=1)
    logprobs = scaled - top[:, None]
    logprobs -= np.log(np.exp(logprobs).sum(axis=1))[:, None]
    probabilities = np.exp(logprobs)
    noised = gumbel_noise(keys, scaled.shape[1]) + scaled
    if not keeps_all(sampling):
        noised[~kept_tokens(scaled, sampling)] = -np.inf
    drawn = noised.argmax(axis=1)
    best = noised[each, drawn]
    margins = best - noised[each, claimed]
    noised[each, drawn] = -np.inf
    gaps = best - noised.max(axis=1)
    return RowStatistics(
        margins=np.where(margins <= clip, margins, clip),
        drawn=drawn,
        runner_up_margins=np.where(gaps <= clip, gaps, clip),
        logprobs=logprobs[each, claimed],
        drawn_logprobs=logprobs[each, drawn],
        entropies=-np.where(probabilities > 0, probabilities * logprobs, 0.0).sum(axis=1),
        eos_probabilities=probabilities[:, list(eos_ids)].sum(axis=1),
        tiny_probabilities=np.where(probabilities < TINY, probabilities, 0.0).sum(axis=1),
    )
