"""One packed forward pass over the audited rows, for every check that needs the model.

In: a case whose cheap checks have passed, and the model of its policy version. Out: `Measurements`.
Prompt and completion go through the model together; row i of a completion is the state that its token i was
sampled from (row 0: the last prompt token's). Rollouts are taken in slices of a bounded number of tokens, and
logits of a slice in blocks, so memory doesn't grow with the submission.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from protocol.checks.case import Case
from protocol.checks.measurements import Floats, Measurements, ProofErrors
from protocol.forward import CausalLM
from protocol.rollouts import Rollout
from protocol.rules import ToplocRules
from protocol.sampling import Keys, noise_keys
from protocol.sampling_torch import as_tensor, margins, token_logprobs
from protocol.toploc.strict import verify_rollouts

MAX_SLICE_TOKENS = 8192
MAX_BLOCK_VALUES = 1 << 20
"""Logits held at a time: 8 MiB an array in float64."""


@dataclass(frozen=True, eq=False)
class Slice:
    """Consecutive rollouts, from number `first` of the task on."""

    first: int
    rollouts: Sequence[Rollout]

    @property
    def lengths(self) -> list[int]:
        return [rollout.num_units for rollout in self.rollouts]


@torch.inference_mode()
def measure(case: Case, model: CausalLM, max_slice_tokens: int = MAX_SLICE_TOKENS) -> Measurements:
    """Everything that the model says of a case. The model's dtype decides the precision of the states."""
    return Measurements.joined([_measured(case, model, part) for part in slices(case.rollouts, max_slice_tokens)])


def slices(rollouts: Sequence[Rollout], max_tokens: int) -> Iterator[Slice]:
    """Consecutive rollouts of at most `max_tokens` together; a longer one is a slice of its own."""
    first = num_tokens = 0
    for index, rollout in enumerate(rollouts):
        length = len(rollout.input_tokens) + rollout.num_units - 1
        if index > first and num_tokens + length > max_tokens:
            yield Slice(first, rollouts[first:index])
            first, num_tokens = index, 0
        num_tokens += length
    yield Slice(first, rollouts[first:])


def sampled_states(model: CausalLM, rollouts: Sequence[Rollout]) -> Tensor:
    """Hidden states [N, H] that the N output tokens of these rollouts were sampled from, in one packed pass."""
    sequences = [np.concatenate([r.input_tokens, r.output_tokens[:-1]]) for r in rollouts]
    is_sampled = np.concatenate(
        [np.arange(len(s)) >= len(r.input_tokens) - 1 for s, r in zip(sequences, rollouts, strict=True)]
    )
    tokens = torch.from_numpy(np.concatenate(sequences).astype(np.int64))
    states: Tensor = model(tokens, [len(s) for s in sequences])[torch.from_numpy(is_sampled)]
    return states


def _measured(case: Case, model: CausalLM, part: Slice) -> Measurements:
    hidden = sampled_states(model, part.rollouts)
    found_margins, found_logprobs, found_eos = _over_logits(case, model, part, hidden)
    return Measurements(
        margins=found_margins,
        logprobs=found_logprobs,
        eos_probabilities=found_eos[np.cumsum(part.lengths) - 1],
        proofs=_proof_errors(torch.split(hidden, part.lengths), part.rollouts, case.rules.toploc),
    )


def _over_logits(case: Case, model: CausalLM, part: Slice, hidden: Tensor) -> list[Floats]:
    """Margins, log-probs and P(EOS), float64 [N] each, a block of logits at a time."""
    sampling, clip = case.rules.sampling, case.rules.thresholds.sampling_margin_clip
    claimed = torch.from_numpy(np.concatenate([r.output_tokens for r in part.rollouts]).astype(np.int64))
    keys = as_tensor(_keys(case.terms.seed, part))
    eos_ids = torch.tensor(case.environment.tokenizer.eos_ids)
    block_size = max(1, MAX_BLOCK_VALUES // model.config.vocab_size)
    blocks = []
    for start in range(0, len(hidden), block_size):
        rows = slice(start, start + block_size)
        logits = model.logits(hidden[rows])
        probabilities = (logits.double() / sampling.temperature).softmax(dim=1)
        blocks.append(
            (
                margins(logits, claimed[rows], keys[rows], sampling, clip),
                token_logprobs(logits, claimed[rows], sampling).double(),
                probabilities[:, eos_ids].sum(dim=1),
            )
        )
    return [torch.cat(column).numpy() for column in zip(*blocks, strict=True)]


def _keys(seed: bytes, part: Slice) -> Keys:
    """uint64 [N]: the noise of every token, by its rollout's number in the task and its position."""
    samples = np.repeat(np.arange(part.first, part.first + len(part.lengths)), part.lengths)
    positions = np.concatenate([np.arange(length) for length in part.lengths])
    return noise_keys(seed, samples, positions)


def _proof_errors(hidden: Sequence[Tensor], rollouts: Sequence[Rollout], shape: ToplocRules) -> ProofErrors:
    states, columns = [rows.bfloat16() for rows in hidden], [rollout.proofs for rollout in rollouts]
    found = verify_rollouts(states, columns, chunk_rows=shape.chunk_rows, topk=shape.topk, ties=shape.ties)
    return ProofErrors(
        len(found.chunks), found.num_values, found.mismatches, found.mantissa_error_sum, found.num_degenerate
    )
