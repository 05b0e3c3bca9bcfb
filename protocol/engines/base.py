"""What every engine does: weights in, finished completions out, with what a proof needs.

    ModelFolder ──load──▶ engine ──generate(requests, seed, sampling, eos_ids)──▶ Completion, Completion, …

An engine draws tokens by `protocol/sampling.py` and nothing else, so that any two of them give the
same tokens but for near-ties. One file per engine: `torch.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from protocol.rollouts import Float32Array, Int32Array
from protocol.rules import SamplingRules

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Request:
    """One rollout to generate. `sample` is its number in the task (group × group size + place): it picks the noise.

    `input_tokens` is int32 [P], P ≥ 1. Example: `Request(sample=9, input_tokens=prompt)`.
    """

    sample: int
    input_tokens: Int32Array


@dataclass(frozen=True, eq=False)
class Completion:
    """A finished request, in the terms of `protocol/rollouts.py`.

    output_tokens int32 [T], T ≥ 1; output_logprobs float32 [T]; hidden_rows bf16 [T, H], the last hidden
    states at the sampled positions (row 0 is the last prompt token's); finish_reason "stop" or "length".
    """

    sample: int
    output_tokens: Int32Array
    output_logprobs: Float32Array
    hidden_rows: Tensor
    finish_reason: str


class Engine(Protocol):
    """The same weights, requests, seed and sampling rules give the same completions, in any order."""

    def load(self, folder: Path) -> None:
        """Take the model in a Hugging Face folder. Raises ConfigError or MalformedFile."""
        ...

    def generate(
        self, requests: Sequence[Request], seed: bytes, sampling: SamplingRules, eos_ids: Collection[int]
    ) -> Iterator[Completion]:
        """Completions as they finish; a token of `eos_ids` ends one.

        Raises ProofpoolError before `load`, and for logits that aren't finite.
        """
        ...
