"""Work that isn't honest but lies near to it: what limits are measured against, so that their distance is known.

In: a subject. Out: `Deviation`s, each of which makes submissions: weights rounded to fewer bits, a lower precision,
another temperature, another published step. How submissions are forged on purpose is no matter of this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from protocol.checks.case import Case
from protocol.errors import UsageError
from protocol.rules import SamplingRules
from protocol.tokenizer import TOKENIZER_FILE
from protocol.weights import ModelConfig, load_weights, save_checkpoint
from verifier.calibration.generate import Generation
from verifier.calibration.observe import Model, judged
from verifier.calibration.setups import Dtype, Generator, Judge

COOLER = 0.9
WEIGHT_BITS = (8, 4)


@dataclass(frozen=True)
class Deviation:
    """One way to deviate: other weights, another precision or other sampling than the rules'.

    `keeps_proofs`: only the tokens deviate; proofs and log-probs are the right model's.
    """

    name: str
    folder: Path
    dtype: Dtype
    sampling: SamplingRules
    keeps_proofs: bool = False

    def submission(self, generation: Generation, number: int, model: Model, judge: Judge, max_batch: int) -> Case:
        """Submission `number`, made this way."""
        generator = Generator("torch", self.dtype, max_batch=max_batch)
        case = generation.task(number, generator, folder=self.folder, sampling=self.sampling)
        return _with_right_logprobs(case, model, judge) if self.keeps_proofs else case


def deviations(
    generation: Generation, dtype: Dtype, scratch: Path, previous: Path | None = None
) -> Iterator[Deviation]:
    """Nearest ones of each kind; models with other weights are written under `scratch`."""
    subject = generation.subject
    sampling = subject.rules.sampling
    weights = load_weights(subject.folder)
    for bits in WEIGHT_BITS:
        folder = scratch / f"int{bits}"
        if not folder.exists():
            save_checkpoint(folder, subject.model_config, rounded(weights, bits), [subject.folder / TOKENIZER_FILE])
        yield Deviation(f"int{bits} weights", folder, dtype, sampling)
    if dtype == "float32":
        yield Deviation("bfloat16 arithmetic", subject.folder, "bfloat16", sampling)
    cooler = sampling.model_copy(update={"temperature": sampling.temperature * COOLER})
    yield Deviation(f"temperature {cooler.temperature:g}", subject.folder, dtype, cooler, keeps_proofs=True)
    if previous is not None:
        if ModelConfig.load(previous).weight_shapes() != subject.model_config.weight_shapes():
            raise UsageError("the previous version is of another model", f"{previous}")
        yield Deviation("the version before", previous, dtype, sampling)


def rounded(weights: Mapping[str, Tensor], bits: int) -> dict[str, Tensor]:
    """Matrices rounded to whole multiples of their rows' largest value / (2^(bits - 1) − 1); the rest as it is."""
    steps = 2 ** (bits - 1) - 1
    found = {}
    for name, tensor in weights.items():
        wide = tensor.float()
        scale = wide.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / steps
        found[name] = (wide / scale).round() * scale if wide.dim() == 2 else wide
    return found


def _with_right_logprobs(case: Case, model: Model, judge: Judge) -> Case:
    logprobs = judged(case, model, judge).logprobs.astype(np.float32)
    ends = np.cumsum([rollout.num_units for rollout in case.rollouts])[:-1]
    rows = zip(case.rollouts, np.split(logprobs, ends), strict=True)
    return replace(case, rollouts=tuple(replace(rollout, output_logprobs=row) for rollout, row in rows))
