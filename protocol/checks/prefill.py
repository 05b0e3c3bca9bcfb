"""One packed forward pass over the audited rollouts, for every check that needs the model.

In: a case whose cheap checks have passed, and the model of its policy version. Out: `Measurements`.
A prompt goes through the model once for all of its rollouts. Rollouts are taken in slices of a bounded number of
tokens, and logits of a slice in blocks: what grows with the submission are numbers a token and results a proof chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from protocol.checks.case import Case
from protocol.checks.measurements import Measurements
from protocol.checks.slices import Slice, slices
from protocol.checks.stopwatch import Stopwatch
from protocol.forward import CausalLM
from protocol.rules import ToplocRules
from protocol.sampling import Keys, Logits, Tokens, keeps_all
from protocol.sampling_edges import edge_margins
from protocol.sampling_rows import RowStatistics, measure_rows
from protocol.stamp import StampPair
from protocol.states import sampled_states
from protocol.toploc.pooled import ChunkResult
from protocol.toploc.strict import verify_rollouts

MAX_SLICE_TOKENS = 8192
MAX_BLOCK_VALUES = 1 << 24
"""Logits held at a time: 64 MiB in float32. Each block reads the vocabulary's matrix once, so small ones cost more."""

MIN_ROWS_PER_THREAD = 8
MAX_EDGE_ROWS = 32
"""Of a block. Each row takes a sort, and an honest bfloat16 one is at an edge once in 2,000."""

Answers = dict[StampPair, float]


@torch.inference_mode()
def measure(
    case: Case,
    model: CausalLM,
    audited: Sequence[int] | None = None,
    asked: Sequence[StampPair] = (),
    max_slice_tokens: int = MAX_SLICE_TOKENS,
    watch: Stopwatch | None = None,
) -> Measurements:
    """Everything that the model says of a case. The model's dtype decides the precision of the states.

    `audited` are numbers of rollouts, ascending, all of them if it is None; `asked` are tokens of audited rollouts
    whose log-probs are wanted besides (a work stamp's). `watch` is told of the stages forward, rows and toploc.
    """
    watch = watch or Stopwatch()
    numbers = tuple(range(len(case.rollouts)) if audited is None else audited)
    lengths = tuple(case.rollouts[number].num_units for number in numbers)
    statistics, answers, start = RowStatistics.empty(sum(lengths)), Answers(), 0
    chunks: list[ChunkResult] = []
    for part in slices(case.rollouts, numbers, max_slice_tokens):
        hidden = sampled_states(model, part.rollouts)
        watch.lap("forward")
        for rows, found in _over_logits(case, model, part, hidden, asked, answers):
            statistics.put(slice(start + rows.start, start + rows.stop), found)
        watch.lap("rows")
        chunks += _chunks(torch.split(hidden, part.lengths), part, case.rules.toploc)
        watch.lap("toploc")
        start += len(hidden)
    wanted = np.array([answers[pair] for pair in asked], dtype=np.float64)
    return Measurements(numbers, lengths, statistics, tuple(chunks), wanted)


def _over_logits(
    case: Case, model: CausalLM, part: Slice, hidden: Tensor, asked: Sequence[StampPair], answers: Answers
) -> Iterator[tuple[slice, RowStatistics]]:
    """The statistics of the slice's tokens, a block of logits at a time; what is asked goes into `answers`."""
    claimed, keys = part.claimed(), part.keys(case.terms.seed)
    places = {pair: part.row_of(pair.rollout, pair.position) for pair in asked if pair.rollout in part.numbers}
    block_size = max(1, MAX_BLOCK_VALUES // model.config.vocab_size)
    for start in range(0, len(hidden), block_size):
        rows = slice(start, min(start + block_size, len(hidden)))
        logits = model.logits(hidden[rows]).float().numpy()
        found = _edges_settled(
            case, logits, claimed[rows], keys[rows], _measured(case, logits, claimed[rows], keys[rows])
        )
        here = {pair: row - start for pair, row in places.items() if rows.start <= row < rows.stop}
        answers.update(_answered(logits, here))
        yield rows, found


def _measured(case: Case, logits: Logits, claimed: Tokens, keys: Keys) -> RowStatistics:
    """A block's statistics; its rows are shared out among as many threads as torch has."""
    clip, eos_ids = case.rules.thresholds.margin_reach, case.environment.tokenizer.eos_ids

    def measured(rows: slice) -> RowStatistics:
        return measure_rows(logits[rows], claimed[rows], keys[rows], case.rules.sampling, clip=clip, eos_ids=eos_ids)

    num_threads = max(1, min(torch.get_num_threads(), len(logits) // MIN_ROWS_PER_THREAD))
    if num_threads == 1:
        return measured(slice(None))
    cuts = np.linspace(0, len(logits), num_threads + 1).astype(int).tolist()
    with ThreadPoolExecutor(num_threads) as pool:
        parts = pool.map(measured, [slice(*ends) for ends in zip(cuts, cuts[1:], strict=False)])
        return RowStatistics.joined(list(parts))


def _edges_settled(case: Case, logits: Logits, claimed: Tokens, keys: Keys, found: RowStatistics) -> RowStatistics:
    """The same, where a margin that would be refused is no larger than the place of top_k's or top_p's cut allows.

    Such a token still counts as a flip. A block that has too many of them isn't looked into: no rounding does that.
    """
    sampling, limits = case.rules.sampling, case.rules.thresholds
    nats = limits.sampling_margin_max.reject
    far = np.flatnonzero(found.margins > nats)
    if keeps_all(sampling) or not 0 < len(far) <= MAX_EDGE_ROWS:
        return found
    clip = limits.margin_reach
    at_edges = edge_margins(logits[far], claimed[far], keys[far], sampling, nats=nats, clip=clip)
    margins = found.margins.copy()
    margins[far] = np.minimum(margins[far], np.maximum(at_edges, min(nats, limits.near_tie_nats)))
    return replace(found, margins=margins)


def _answered(logits: Logits, here: dict[StampPair, int]) -> Answers:
    """Log-probs of the asked tokens, at temperature 1 whatever the rules say.

    At a low temperature nearly all tokens would lie beyond any bound, at a high one all would be about as likely: a
    stamp could be guessed.
    """
    rows = sorted(set(here.values()))
    scaled = logits[rows].astype(np.float64)
    top = scaled.max(axis=1)
    totals = top + np.log(np.exp(scaled - top[:, None]).sum(axis=1))
    return {pair: float(scaled[place := rows.index(row), pair.token] - totals[place]) for pair, row in here.items()}


def _chunks(hidden: Sequence[Tensor], part: Slice, shape: ToplocRules) -> Iterator[ChunkResult]:
    states, columns = [rows.bfloat16() for rows in hidden], [rollout.proofs for rollout in part.rollouts]
    found = verify_rollouts(states, columns, chunk_rows=shape.chunk_rows, topk=shape.topk, ties=shape.ties)
    return (replace(chunk, rollout=part.numbers[chunk.rollout]) for chunk in found.chunks)
