"""Where a file first parts from what the verifier computes: the token, or the proof chunk, to look at.

In: a case with its measurements, and the results. Out: `TokenDivergence` where a check of tokens or log-probs refuses,
`ChunkDivergence` where a check of proofs does; None where none does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from protocol.checks import logprobs
from protocol.checks.case import Case
from protocol.checks.measurements import measurements_of
from protocol.reasons import Outcome, RejectReason
from protocol.toploc.pooled import ChunkResult
from protocol.wire import CheckResult


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Token(_Frozen):
    """A token of the vocabulary, and what it reads as."""

    id: int
    text: str


class TokenDivergence(_Frozen):
    """An output token at which the file isn't what the verifier computes.

    `claimed` stands in the file, `drawn` is what the seed's noise draws from the verifier's logits, `margin` how far
    the claimed one lies below it (nats, clipped); None for both where sampling isn't bound to the seed.
    `claimed_logprob` is what the file says of the claimed token, `recomputed_logprob` what the model says of it.
    """

    rollout: int
    position: int
    claimed: Token
    drawn: Token | None
    margin: float | None
    claimed_logprob: float
    recomputed_logprob: float
    drawn_logprob: float | None


class ChunkDivergence(_Frozen):
    """A proof chunk that isn't of the verifier's hidden states: output tokens `first_position` to `last_position`."""

    rollout: int
    chunk: int
    first_position: int
    last_position: int
    num_values: int
    sign_mismatches: int
    exp_mismatches: int
    mismatches: int
    mantissa_mean: float
    mantissa_median: float
    is_degenerate: bool


def first_token(case: Case, results: Sequence[CheckResult]) -> TokenDivergence | None:
    """The first token that a refused check of sampling or log-probs is about."""
    if RejectReason.SAMPLING_MISMATCH in _refused_by(results) and case.rules.sampling.bound_to_seed:
        return _token(case, _first_flip(case))
    if RejectReason.LOGPROB_MISMATCH in _refused_by(results):
        errors = logprobs.errors_of(case)
        return _token(case, _first(errors > case.rules.thresholds.logprob_error_mean.at(1).reject, errors))
    return None


def first_chunk(case: Case, results: Sequence[CheckResult]) -> ChunkDivergence | None:
    """The first chunk that is beyond the limits of a single one, if a check of proofs refuses; else the worst."""
    if RejectReason.TOPLOC_MISMATCH not in _refused_by(results):
        return None
    limits, chunks = case.rules.thresholds, measurements_of(case).chunks
    share, mean = limits.toploc_exp_mismatch_share.at(1).reject, limits.toploc_mantissa_mean.at(1).reject

    def is_beyond(chunk: ChunkResult) -> bool:
        return chunk.is_degenerate or chunk.mismatches > share * chunk.num_values or chunk.mantissa_mean > mean

    worst = max(chunks, key=lambda chunk: (chunk.mismatches, chunk.mantissa_mean))
    return _chunk(case, next(filter(is_beyond, chunks), worst))


def _refused_by(results: Sequence[CheckResult]) -> set[str | None]:
    return {result.reason for result in results if result.outcome != Outcome.ACCEPT}


def _first_flip(case: Case) -> int:
    """The first flip that float noise doesn't explain, else the first flip."""
    margins, limits = measurements_of(case).margins, case.rules.thresholds
    return _first(margins > limits.near_tie_nats, np.where(margins > 0, 1.0, 0.0))


def _first(is_off: npt.NDArray[np.bool_], otherwise: npt.NDArray[np.float64]) -> int:
    """The first place that is off; where none is, the first of the largest."""
    return int(is_off.argmax() if is_off.any() else otherwise.argmax())


def _token(case: Case, index: int) -> TokenDivergence:
    found = measurements_of(case)
    rollout, position = found.place(index)
    rows, row = found.rows, case.rollouts[rollout]
    is_bound = case.rules.sampling.bound_to_seed
    return TokenDivergence(
        rollout=rollout,
        position=position,
        claimed=_named(case, int(row.output_tokens[position])),
        drawn=_named(case, int(rows.drawn[index])) if is_bound else None,
        margin=float(rows.margins[index]) if is_bound else None,
        claimed_logprob=float(row.output_logprobs[position]),
        recomputed_logprob=float(rows.logprobs[index]),
        drawn_logprob=float(rows.drawn_logprobs[index]) if is_bound else None,
    )


def _named(case: Case, token: int) -> Token:
    return Token(id=token, text=case.environment.tokenizer.text_of(token))


def _chunk(case: Case, chunk: ChunkResult) -> ChunkDivergence:
    num_rows, values = case.rules.toploc.chunk_rows, asdict(chunk)
    first = chunk.chunk * num_rows
    return ChunkDivergence(
        first_position=first,
        last_position=min(first + num_rows, case.rollouts[chunk.rollout].num_units) - 1,
        **{name: values[name] for name in ChunkDivergence.model_fields if name in values},
    )
