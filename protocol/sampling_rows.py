"""What engines draw and verifiers measure, a block of rows at a time, at the speed of the compiled scan.

`draw_tokens` is the one of `protocol/sampling.py`, the same tokens; `measure_rows` is all that a verifier wants to know
of claimed tokens. One core takes about 2 ms for 32 rows of 49,152 logits, noise included, and 4 ms with top_p.

In: logits [N, V] (float32 without a copy; other dtypes go the plain way), keys [N] of `noise_keys`. Out: tokens and
log-probs, or `RowStatistics`. The scan behind both: `protocol/sampling_scan.py`; docs/sampling.md.

Example::

    rows = measure_rows(logits.numpy(), claimed, keys, rules.sampling, clip=10.0, eos_ids=tokenizer.eos_ids)
    rows.margins.mean(), (rows.margins > 0).sum()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from protocol.errors import ProofpoolError
from protocol.rules import SamplingRules
from protocol.sampling import Float32Array, Float64Array, Keys, Logits, Tokens, token_noise
from protocol.sampling_scan import NO_TOKEN, RowScan, scan_rows

TINY = 1e-4
"""A chosen token of less probability than this counts as implausible."""
MAX_CLIP = 500.0
"""The scan drops tokens that lie farther than 700 nats below the best."""


@dataclass(frozen=True, eq=False)
class RowStatistics:
    """Arrays [N], float64 but for `drawn`; probabilities after temperature, before top_k and top_p, logarithms in nats.

    `margins`: in [0, clip], how far the claimed token's noised logit lies below the row's best; 0 is the drawn token
    itself, `clip` one outside the kept set. `drawn`: int64, the token that the noise draws. `runner_up_margins`: the
    same distance of the second best token, so how near to a tie the row is. `logprobs`, `drawn_logprobs`: of the
    claimed and of the drawn token. `entropies`: of the distribution, the expected −logprob. `eos_probabilities`:
    P(EOS). `tiny_probabilities`: the probability of choosing a token of less than TINY. A row whose logits aren't
    finite has `clip` for margins, NO_TOKEN for `drawn`, and NaN elsewhere.
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
    def empty(cls, num_rows: int) -> RowStatistics:
        """Room for so many rows, to be `put`."""
        margins, *others = np.zeros((len(fields(cls)) - 1, num_rows))
        return cls(margins, np.zeros(num_rows, dtype=np.int64), *others)

    def put(self, rows: slice, part: RowStatistics) -> None:
        """Take these rows from another block."""
        for field in fields(self):
            getattr(self, field.name)[rows] = getattr(part, field.name)

    @classmethod
    def joined(cls, parts: Sequence[RowStatistics]) -> RowStatistics:
        """The statistics of consecutive blocks of rows as one; there is at least one."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def draw_tokens(logits: Logits, keys: Keys, sampling: SamplingRules) -> tuple[Tokens, Float32Array]:
    """The token of each row (int64 [B]) and its log-prob (float32 [B], nats, before top-k and top-p).

    Raises ProofpoolError where logits aren't finite numbers: an engine with a fault must not sample from it.
    """
    scan = scan_rows(logits, keys, sampling)
    logprobs = Rows(logits, keys, sampling, scan).logprobs(scan.drawn).astype(np.float32)
    is_bad = ~scan.is_finite | ~np.isfinite(logprobs)
    if is_bad.any():
        raise ProofpoolError("the model's logits aren't finite", f"row {int(np.argmax(is_bad))}")
    return scan.drawn, logprobs


def measure_rows(
    logits: Logits, claimed: Tokens, keys: Keys, sampling: SamplingRules, *, clip: float, eos_ids: Sequence[int] = ()
) -> RowStatistics:
    """Every statistic of the rows of a block, in one scan. `claimed` int64 [N] are ids of the vocabulary.

    Raises ProofpoolError for ids outside of the vocabulary and for a clip above MAX_CLIP.
    """
    _require_ids(logits.shape[1], claimed, np.asarray(eos_ids, dtype=np.int64))
    if not 0 < clip <= MAX_CLIP:
        raise ProofpoolError("margins can't be clipped there", f"{clip}, where 0 < clip <= {MAX_CLIP:.0f}")
    scan = scan_rows(logits, keys, sampling, claimed, eos_ids, TINY)
    rows = Rows(logits, keys, sampling, scan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return RowStatistics(
            margins=rows.margins(claimed, scan.is_claimed_kept, clip),
            drawn=np.where(scan.is_finite, scan.drawn, NO_TOKEN),
            runner_up_margins=rows.margins(scan.runner_up, scan.runner_up != NO_TOKEN, clip),
            logprobs=rows.logprobs(claimed),
            drawn_logprobs=rows.logprobs(scan.drawn),
            entropies=rows.finite(np.log(scan.weight) - scan.weighted_logit / scan.weight),
            eos_probabilities=rows.finite(scan.eos_weight / scan.weight),
            tiny_probabilities=rows.finite(scan.tiny_weight / scan.weight),
        )


class Rows:
    """Rows and their scan: what a given token of each is worth, by the expressions of `protocol/sampling.py`."""

    def __init__(self, logits: Logits, keys: Keys, sampling: SamplingRules, scan: RowScan) -> None:
        self._logits = logits
        self._keys = keys
        self._temperature = sampling.temperature
        self._scan = scan
        self._each = np.arange(len(logits))

    def finite(self, values: Float64Array) -> Float64Array:
        """NaN for rows whose logits aren't finite."""
        return np.where(self._scan.is_finite, values, np.nan)

    def logprobs(self, tokens: Tokens) -> Float64Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.finite(self._scaled(tokens) - self._scan.top - np.log(self._scan.weight))

    def margins(self, tokens: Tokens, is_kept: np.typing.NDArray[np.bool_], clip: float) -> Float64Array:
        found = self._noised(self._scan.drawn) - self._noised(tokens)
        return np.where(self._scan.is_finite & is_kept & (found <= clip), found, clip)

    def _scaled(self, tokens: Tokens) -> Float64Array:
        scaled: Float64Array = self._logits[self._each, tokens].astype(np.float64) / self._temperature
        return scaled

    def _noised(self, tokens: Tokens) -> Float64Array:
        return token_noise(self._keys, tokens) + self._scaled(tokens)


def _require_ids(vocab_size: int, *ids: Tokens) -> None:
    for tokens in ids:
        if tokens.size and not 0 <= tokens.min() <= tokens.max() < vocab_size:
            raise ProofpoolError("a token isn't of the vocabulary", f"{tokens.min()} to {tokens.max()} of {vocab_size}")
