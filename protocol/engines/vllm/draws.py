"""What is asked of a row of vLLM's batch, and what was drawn from it: the part that no version of vLLM changes.

    SamplingParams.extra_args ──Asked.of──▶ Asked ──draw(logits, …)──▶ tokens, log-probs ──▶ Draws, one a request

Positions make sure that no token is lost, doubled or another request's: a draw either comes next, or repeats a
position that a preemption made vLLM compute again, and then the first stays, since the token came from that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from protocol.engines.base import Request
from protocol.errors import ProofpoolError
from protocol.rules import SamplingRules
from protocol.sampling import Float32Array, Tokens, noise_keys
from protocol.sampling_torch import draw_rows

ARGUMENT = "proofpool"
"""Our entry of a request's `extra_args`: plain values, since vLLM may hand them to another process."""


@dataclass(frozen=True)
class Asked:
    """What a request's tokens depend on besides logits; `key` names it, `keeps_logits` is the probe's wish."""

    key: str
    seed: bytes
    sample: int
    sampling: SamplingRules
    num_prompt_tokens: int
    keeps_logits: bool = False

    @classmethod
    def to_extra_args(cls, key: str, request: Request, *, keeps_logits: bool = False) -> dict[str, Any]:
        """What `of` reads."""
        asked = {
            "key": key,
            "seed": request.seed.hex(),
            "sample": request.sample,
            "sampling": request.sampling.model_dump(mode="json"),
            "num_prompt_tokens": len(request.input_tokens),
            "keeps_logits": keeps_logits,
        }
        return {ARGUMENT: asked}

    @classmethod
    def of(cls, extra_args: dict[str, Any] | None) -> Asked | None:
        """None for a request that isn't ours."""
        asked = (extra_args or {}).get(ARGUMENT)
        if asked is None:
            return None
        sampling = SamplingRules.model_validate(asked["sampling"])
        return cls(**asked | {"seed": bytes.fromhex(asked["seed"]), "sampling": sampling})


@dataclass
class Draws:
    """All that was drawn for one request so far."""

    asked: Asked
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)
    logits: Tensor | None = None
    """float32 [V], of the first position, where they are to be kept."""

    def put(self, position: int, token: int, logprob: float, row: Tensor) -> None:
        """The draw for output position `position`, from the state `row` [H]. Raises ProofpoolError across a gap."""
        if position < len(self.tokens):
            return
        if position > len(self.tokens):
            raise ProofpoolError(
                "vLLM skipped a position", f"{self.asked.key}: {len(self.tokens)} drawn, now {position}"
            )
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.rows.append(row)


def draw(logits: Tensor, asked: Sequence[Asked], positions: Sequence[int]) -> tuple[Tokens, Float32Array]:
    """The token of each row (int64 [B]) of logits [B, V] and its log-prob (float32 [B]), each by its own rules.

    Raises ProofpoolError for logits that aren't finite.
    """
    keys = np.concatenate([noise_keys(a.seed, [a.sample], [p]) for a, p in zip(asked, positions, strict=True)])
    tokens, logprobs = np.empty(len(asked), dtype=np.int64), np.empty(len(asked), dtype=np.float32)
    for sampling, places in _by_rules(asked).items():
        chosen = logits if len(places) == len(asked) else logits[places]
        tokens[places], logprobs[places] = draw_rows(chosen, keys[places], sampling)
    return tokens, logprobs


def _by_rules(asked: Sequence[Asked]) -> dict[SamplingRules, list[int]]:
    places: dict[SamplingRules, list[int]] = {}
    for place, one in enumerate(asked):
        places.setdefault(one.sampling, []).append(place)
    return places
