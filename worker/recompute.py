"""A second look at own rollouts: one packed forward pass that shares nothing with the engine but the weights.

In: rollouts as they stand in the file, the task's work, a model folder. Out: `Deviations`, the statistics that
the pool's thresholds limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from protocol.forward import CausalLM
from protocol.packing import Packing
from protocol.rollouts import Rollout
from protocol.sampling import margins, noise_keys, token_logprobs
from protocol.toploc.strict import verify_rollouts
from worker.work import Work


@dataclass(frozen=True)
class Deviations:
    """How far rollouts are from what the model gives; units as in `protocol.rules.Thresholds`."""

    toploc_exp_mismatch_share: float
    toploc_mantissa_mean: float
    sampling_margin_mean: float
    sampling_mismatch_share: float
    logprob_error_mean: float


@torch.inference_mode()
def recompute(rollouts: Sequence[Rollout], work: Work, model_folder: Path) -> Deviations:
    """Deviations of all rollouts of a task. Raises MalformedProof where a proof isn't even that."""
    model = CausalLM.load(model_folder)
    rules = work.rules
    hidden = sampled_states(model, rollouts)
    lengths = [rollout.num_units for rollout in rollouts]
    rows = list(torch.split(hidden.bfloat16(), lengths))
    proofs = verify_rollouts(
        rows,
        [rollout.proofs for rollout in rollouts],
        chunk_rows=rules.toploc.chunk_rows,
        topk=rules.toploc.topk,
        ties=rules.toploc.ties,
    )
    logits = model.logits(hidden).float().numpy()
    tokens = np.concatenate([rollout.output_tokens for rollout in rollouts]).astype(np.int64)
    samples = np.repeat(np.arange(len(rollouts)), lengths)
    positions = np.concatenate([np.arange(length) for length in lengths])
    keys = noise_keys(work.seed, samples, positions)
    off = margins(logits, tokens, keys, rules.sampling, rules.thresholds.sampling_margin_clip)
    claimed = np.concatenate([rollout.output_logprobs for rollout in rollouts])
    errors = np.abs(claimed.astype(np.float64) - token_logprobs(logits, tokens, rules.sampling))
    return Deviations(
        toploc_exp_mismatch_share=proofs.mismatch_share,
        toploc_mantissa_mean=proofs.mantissa_mean,
        sampling_margin_mean=float(off.mean()),
        sampling_mismatch_share=float((off > 0).mean()),
        logprob_error_mean=float(errors.mean()),
    )


def sampled_states(model: CausalLM, rollouts: Sequence[Rollout]) -> Tensor:
    """Hidden states [N, H] that the N output tokens were drawn from: those of each one's predecessor."""
    sequences = [np.concatenate([r.input_tokens, r.output_tokens[:-1]]) for r in rollouts]
    packing = Packing.of([len(sequence) for sequence in sequences])
    hidden = model(torch.from_numpy(np.concatenate(sequences).astype(np.int64)), packing)
    ends = [int(row) + 1 for row in packing.last_rows]
    return torch.cat([hidden[end - r.num_units : end] for end, r in zip(ends, rollouts, strict=True)])
