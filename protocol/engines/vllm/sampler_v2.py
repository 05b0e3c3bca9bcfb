"""Our sampling inside vLLM's second model runner ("V2", what it takes on GPUs with Triton).

Not run yet: that runner needs a GPU. Its logic is tested on a processor with the runner's own types; what the runner
does around it is read from vllm/v1/worker/gpu/sample of vLLM 0.32. In: logits [R, V] and the step's layout. Out: the
same logits with our token on top.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsProcessor

from protocol.engines.vllm.desk import Desk
from protocol.engines.vllm.draws import Asked


class SeededSlots(LogitsProcessor):  # type: ignore[misc]  # vLLM has no types
    """Requests by the slot that the runner keeps them in; a row of logits names its slot and its position."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self.desk = Desk()
        self._slots: dict[int, Asked] = {}

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """A slot has a new request; whether it is ours."""
        asked = Asked.of(sampling_params.extra_args)
        self._slots.pop(req_idx, None)
        if asked is not None:
            self._slots[req_idx] = asked
        return asked is not None

    def apply(self, logits: Tensor, ctx: Any) -> Tensor:
        """The state at position p of a sequence draws output token p + 1 − (prompt tokens); before 0, none."""
        rows, asked, positions = [], [], []
        for row, (slot, position) in enumerate(zip(ctx.expanded_idx_mapping.tolist(), ctx.pos.tolist(), strict=True)):
            one = self._slots.get(slot)
            if one is not None and position + 1 >= one.num_prompt_tokens:
                rows.append(row)
                asked.append(one)
                positions.append(position + 1 - one.num_prompt_tokens)
        return self.desk.draw(logits, rows, asked, positions)
