"""One rollout while the reference engine decodes it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from protocol.engines.base import Completion, Request


@dataclass
class Decoding:
    """What has been drawn so far for one request."""

    request: Request
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
        if self.tokens and self.tokens[-1] in self.request.eos_ids:
            return "stop"
        return "length" if self.position >= self.request.sampling.max_new_tokens else None

    def completion(self, finish_reason: str) -> Completion:
        return Completion(
            request=self.request,
            output_tokens=np.array(self.tokens, dtype=np.int32),
            output_logprobs=np.array(self.logprobs, dtype=np.float32),
            hidden_rows=torch.stack(self.rows),
            finish_reason=finish_reason,
        )
