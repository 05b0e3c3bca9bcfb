"""What the checks measure of a submission: pooled over all of it, over halves, …, and over each rollout alone.

In: a case and a judge's model. Out: `Observation`s, the numbers that limits are compared with, as the checks reduce
them (`protocol/checks`). Samples of all sizes show how a statistic's spread shrinks with its sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from typing import Any, cast

import numpy as np

from protocol.checks.case import Case
from protocol.checks.measurements import Measurements
from protocol.checks.prefill import measure
from protocol.checks.sampling import flip_sides, pooled_margin
from protocol.forward import CausalLM
from verifier.calibration.reference import ReferenceModel
from verifier.calibration.setups import Judge, computing

Model = CausalLM | ReferenceModel

TIE_NATS = (1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3)
"""How near the two best noised logits of a token lie: near-ties are counted below each of these."""


LISTS = ("flip_margins", "num_ties", "num_tie_flips")


@dataclass(frozen=True)
class Observation:
    """One sample: `num_rollouts` consecutive rollouts pooled. Statistics are named as in `protocol/rules.py`.

    `flip_margins`: of all flips, unclipped; `sampling_margin_mean` is clipped as the rules say.
    `num_flips_up`, `num_flips_down`: flips to the likelier of the two tokens, and to the less likely one.
    `num_ties`, `num_tie_flips`: tokens whose two best noised logits are within each of TIE_NATS, and how many of
    these aren't the drawn one.
    """

    num_rollouts: int
    num_prompt_tokens: int
    num_tokens: int
    num_chunks: int
    num_degenerate: int
    num_flips: int
    num_flips_up: int
    num_flips_down: int
    toploc_exp_mismatch_share: float
    toploc_mantissa_mean: float
    sampling_margin_mean: float
    sampling_margin_max: float
    logprob_error_mean: float
    logprob_error_max: float
    flip_margins: tuple[float, ...]
    num_ties: tuple[int, ...]
    num_tie_flips: tuple[int, ...]

    def as_row(self) -> list[Any]:
        """For a journal; `of_row` reads it."""
        return list(astuple(self))

    @classmethod
    def of_row(cls, row: list[Any]) -> Observation:
        values = dict(zip((field.name for field in fields(cls)), row, strict=True))
        return cls(**values | {name: tuple(values[name]) for name in LISTS})


def judged(case: Case, model: Model, judge: Judge) -> Measurements:
    """One judge's measurements of all rollouts."""
    with computing(judge):
        # `measure` asks a model for hidden states, logits and the vocabulary's size; both kinds give them.
        return measure(case, cast(CausalLM, model), max_slice_tokens=judge.slice_tokens)


def observations(case: Case, found: Measurements, submission_rollouts: int) -> Iterator[Observation]:
    """Samples of 1, 2, 4, … rollouts, and whole submissions."""
    each = [found.only(index) for index in range(len(found.rollouts))]
    for size in sample_sizes(submission_rollouts):
        for start in range(0, len(each) - size + 1, size):
            yield observe(case, Measurements.joined(each[start : start + size]))


def observe(case: Case, found: Measurements) -> Observation:
    """The statistics of these rollouts, pooled."""
    rollouts = [case.rollouts[number] for number in found.rollouts]
    errors = np.abs(np.concatenate([r.output_logprobs for r in rollouts]).astype(np.float64) - found.logprobs)
    is_flip, gaps = found.margins > 0, found.rows.runner_up_margins
    num_up, num_down = flip_sides(found)
    return Observation(
        num_rollouts=len(rollouts),
        num_prompt_tokens=sum(len(r.input_tokens) for r in rollouts),
        num_tokens=found.num_tokens,
        num_chunks=found.proofs.num_chunks,
        num_degenerate=found.proofs.num_degenerate,
        num_flips=int(is_flip.sum()),
        num_flips_up=num_up,
        num_flips_down=num_down,
        toploc_exp_mismatch_share=found.proofs.mismatch_share,
        toploc_mantissa_mean=found.proofs.mantissa_mean,
        sampling_margin_mean=pooled_margin(case, found),
        sampling_margin_max=float(found.margins.max()),
        logprob_error_mean=float(errors.mean()),
        logprob_error_max=float(errors.max()),
        flip_margins=tuple(found.margins[is_flip].tolist()),
        num_ties=tuple(int((gaps <= nats).sum()) for nats in TIE_NATS),
        num_tie_flips=tuple(int((is_flip & (gaps <= nats)).sum()) for nats in TIE_NATS),
    )


def sample_sizes(num_rollouts: int) -> list[int]:
    """1, 2, 4, … and `num_rollouts` itself."""
    sizes = [1 << power for power in range(num_rollouts.bit_length()) if 1 << power < num_rollouts]
    return [*sizes, num_rollouts]
