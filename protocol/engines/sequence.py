"""One rollout while it is being decoded."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from protocol.engines.base import Completion, Request


@dataclass
class Sequence:
    """What has been drawn so far for one request. `eos_ids` end it with "stop", `max_new_tokens` with "length"."""

    request: Request
    eos_ids: frozenset[int]
    max_new_tokens: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)

    def append(self, token: int, logprob: float, row: Tensor) -> None:
        """One more token, and the hidden row [H] that it was drawn from."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.rows.append(row)

    @property
    def position(self) -> int:
        """Index of the output token that comes next."""
        return len(self.tokens)

    @property
    def finish_reason(self) -> str | None:
        if self.tokens and self.tokens[-1] in self.eos_ids:
            return "stop"
        return "length" if self.position >= self.max_new_tokens else None

    def completion(self, finish_reason: str) -> Completion:
        return Completion(
            sample=self.request.sample,
            output_tokens=np.array(self.tokens, dtype=np.int32),
            output_logprobs=np.array(self.logprobs, dtype=np.float32),
            hidden_rows=torch.stack(self.rows),
            finish_reason=finish_reason,
        )
