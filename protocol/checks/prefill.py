"""One packed forward pass over the audited rollouts, for every check that needs the model.

In: a case whose cheap checks have passed, and the model of its policy version. Out: `Measurements`.
A prompt goes through the model once for all of its rollouts. Rollouts are taken in slices of a bounded number of
tokens, and logits of a slice in blocks, so memory doesn't grow with the submission.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from protocol.checks.case import Case
from protocol.checks.measurements import Floats, Measurements
from protocol.checks.stopwatch import Stopwatch
from protocol.forward import CausalLM
from protocol.rollouts import Rollout
from protocol.rules import ToplocRules
from protocol.sampling import Keys, Logits, Tokens, noise_keys
from protocol.sampling_rows import RowStatistics, measure_rows
from protocol.stamp import StampPair
from protocol.states import sampled_states
from protocol.toploc.strict import ChunkResult, verify_rollouts

MAX_SLICE_TOKENS = 8192
MAX_BLOCK_VALUES = 1 << 24
"""Logits held at a time: 64 MiB in float32. Each block reads the vocabulary's matrix once, so small ones cost more."""


@dataclass(frozen=True, eq=False)
class Slice:
    """Some rollouts of a task, by their numbers in it."""

    numbers: tuple[int, ...]
    rollouts: tuple[Rollout, ...]

    @property
    def lengths(self) -> list[int]:
        return [rollout.num_units for rollout in self.rollouts]

    def row_of(self, rollout: int, position: int) -> int:
        """Where output token `position` of the rollout with this number lies among the slice's output tokens."""
        return sum(self.lengths[: self.numbers.index(rollout)]) + position


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
    numbers = range(len(case.rollouts)) if audited is None else audited
    parts = [_measured(case, model, part, asked, watch) for part in slices(case.rollouts, numbers, max_slice_tokens)]
    return replace(Measurements.joined([part for part, _ in parts]), asked=_in_order(asked, [a for _, a in parts]))


def slices(rollouts: Sequence[Rollout], numbers: Sequence[int], max_tokens: int) -> Iterator[Slice]:
    """The rollouts with these numbers, at most `max_tokens` together; a longer one is a slice of its own."""
    held: list[int] = []
    num_tokens = 0
    for number in numbers:
        length = len(rollouts[number].input_tokens) + rollouts[number].num_units - 1
        if held and num_tokens + length > max_tokens:
            yield Slice(tuple(held), tuple(rollouts[index] for index in held))
            held, num_tokens = [], 0
        held.append(number)
        num_tokens += length
    yield Slice(tuple(held), tuple(rollouts[index] for index in held))


Answers = dict[StampPair, float]


def _measured(
    case: Case, model: CausalLM, part: Slice, asked: Sequence[StampPair], watch: Stopwatch
) -> tuple[Measurements, Answers]:
    hidden = sampled_states(model, part.rollouts)
    watch.lap("forward")
    rows, answers = _over_logits(case, model, part, hidden, asked)
    watch.lap("rows")
    chunks = _chunks(torch.split(hidden, part.lengths), part, case.rules.toploc)
    watch.lap("toploc")
    return Measurements(part.numbers, tuple(part.lengths), rows, chunks, np.empty(0)), answers


def _over_logits(
    case: Case, model: CausalLM, part: Slice, hidden: Tensor, asked: Sequence[StampPair]
) -> tuple[RowStatistics, Answers]:
    """The statistics of every token and the answers to what is asked, a block of logits at a time."""
    sampling, clip = case.rules.sampling, case.rules.thresholds.sampling_margin_clip
    claimed = np.concatenate([r.output_tokens for r in part.rollouts]).astype(np.int64)
    keys, eos_ids = _keys(case.terms.seed, part), case.environment.tokenizer.eos_ids
    places = {pair: part.row_of(pair.rollout, pair.position) for pair in asked if pair.rollout in part.numbers}
    block_size = max(1, MAX_BLOCK_VALUES // model.config.vocab_size)
    blocks: list[RowStatistics] = []
    answers: Answers = {}
    for start in range(0, len(hidden), block_size):
        rows = slice(start, start + block_size)
        logits = model.logits(hidden[rows]).float().numpy()
        found = measure_rows(logits, claimed[rows], keys[rows], sampling, clip=clip, eos_ids=eos_ids)
        here = {pair: row - start for pair, row in places.items() if start <= row < start + len(logits)}
        answers |= _answered(logits, claimed[rows], found, here, sampling.temperature)
        blocks.append(found)
    return RowStatistics.joined(blocks), answers


def _answered(
    logits: Logits, claimed: Tokens, found: RowStatistics, here: dict[StampPair, int], temperature: float
) -> Answers:
    """Log-probs of other tokens: that of the claimed one plus the difference of the two logits."""
    return {
        pair: float(
            found.logprobs[row] + (float(logits[row, pair.token]) - float(logits[row, claimed[row]])) / temperature
        )
        for pair, row in here.items()
    }


def _in_order(asked: Sequence[StampPair], answers: Sequence[Answers]) -> Floats:
    found = {pair: logprob for part in answers for pair, logprob in part.items()}
    return np.array([found[pair] for pair in asked], dtype=np.float64)


def _keys(seed: bytes, part: Slice) -> Keys:
    """uint64 [N]: the noise of every token, by its rollout's number in the task and its position."""
    samples = np.repeat(np.array(part.numbers, dtype=np.int64), part.lengths)
    positions = np.concatenate([np.arange(length) for length in part.lengths])
    return noise_keys(seed, samples, positions)


def _chunks(hidden: Sequence[Tensor], part: Slice, shape: ToplocRules) -> tuple[ChunkResult, ...]:
    states, columns = [rows.bfloat16() for rows in hidden], [rollout.proofs for rollout in part.rollouts]
    found = verify_rollouts(states, columns, chunk_rows=shape.chunk_rows, topk=shape.topk, ties=shape.ties)
    return tuple(replace(chunk, rollout=part.numbers[chunk.rollout]) for chunk in found.chunks)
