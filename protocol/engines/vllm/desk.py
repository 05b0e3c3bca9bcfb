"""Where a step's logits meet the states that they were computed from: both samplers draw here.

    extension.py ──states of the step──▶ Desk ◀──logits, whose rows, positions── sampler_v1.py or sampler_v2.py
    Desk ──▶ the logits, changed so that vLLM's argmax takes our token; ──take──▶ packed draws

One desk a worker process of vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from protocol.engines.vllm.draws import Asked, Draws, draw
from protocol.errors import ProofpoolError


class PackedDraws(TypedDict):
    """A request's draws as plain bytes: vLLM decodes no tensors that cross its processes.

    tokens int64 [T], logprobs float32 [T], rows bf16 [T, H], logits float32 [V] or empty; little-endian.
    """

    tokens: bytes
    logprobs: bytes
    rows: bytes
    logits: bytes


class Desk:
    """Draws of all requests at hand. `states` [R, H] are those of the step's rows; the extension sets them."""

    def __init__(self) -> None:
        self.states: Tensor | None = None
        self._draws: dict[str, Draws] = {}

    def draw(self, logits: Tensor, rows: Sequence[int], asked: Sequence[Asked], positions: Sequence[int]) -> Tensor:
        """Draw from these rows of logits [R, V] and make each row's argmax the drawn token. Returns `logits`.

        Raises ProofpoolError where the states don't belong to these logits, and for logits that aren't finite.
        """
        if not rows:
            return logits
        index = torch.tensor(rows, device=logits.device)
        is_whole = list(rows) == list(range(len(logits)))
        tokens, logprobs = draw(logits if is_whole else logits[index], asked, positions)
        self._keep(logits, index, asked, positions, tokens.tolist(), logprobs.tolist())
        # The largest finite number: vLLM takes the argmax, and every logit was found to be finite.
        logits[index, torch.from_numpy(tokens).to(logits.device)] = torch.finfo(logits.dtype).max
        return logits

    def take(self, keys: Sequence[str]) -> list[PackedDraws]:
        """The draws of these requests, which are forgotten; empty ones where nothing was drawn."""
        return [_packed(self._draws.pop(key, None)) for key in keys]

    def _keep(
        self,
        logits: Tensor,
        index: Tensor,
        asked: Sequence[Asked],
        positions: Sequence[int],
        tokens: Sequence[int],
        logprobs: Sequence[float],
    ) -> None:
        if self.states is None or len(self.states) != len(logits):
            found = "none" if self.states is None else f"{len(self.states)} rows"
            raise ProofpoolError("the states aren't those of the logits", f"{found} for {len(logits)} rows of logits")
        states = self.states[index].to(torch.bfloat16).cpu().unbind(0)
        for place, one in enumerate(asked):
            draws = self._draws.setdefault(one.key, Draws(one))
            if one.keeps_logits and draws.logits is None:
                draws.logits = logits[index[place]].float().cpu().clone()
            draws.put(positions[place], tokens[place], logprobs[place], states[place])


def _packed(draws: Draws | None) -> PackedDraws:
    if draws is None or not draws.tokens:
        return PackedDraws(tokens=b"", logprobs=b"", rows=b"", logits=b"")
    return PackedDraws(
        tokens=np.array(draws.tokens, dtype="<i8").tobytes(),
        logprobs=np.array(draws.logprobs, dtype="<f4").tobytes(),
        rows=torch.stack(draws.rows).view(torch.int16).numpy().tobytes(),
        logits=b"" if draws.logits is None else draws.logits.numpy().tobytes(),
    )
