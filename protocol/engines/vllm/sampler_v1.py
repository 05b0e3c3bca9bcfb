"""Our sampling inside vLLM, as a logits processor of its first model runner ("V1": CPUs, and GPUs where asked for).

In: logits [R, V] of a step, a row a request; which rows are whose, by `update_state`. Out: the same logits with our
token on top, which vLLM takes at temperature 0. vLLM makes the instance; its name goes into `EngineArgs`.
Source: vllm/v1/sample/logits_processor/interface.py of vLLM 0.32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

from protocol.engines.vllm.desk import Desk
from protocol.engines.vllm.draws import Asked
from protocol.engines.vllm.rows import RowTable

Entry = tuple[Asked, list[int]]
"""A request and vLLM's own list of its output tokens, which grows as they are sampled."""


class SeededSampler(LogitsProcessor):  # type: ignore[misc]  # vLLM has no types
    """`is_partial` bool [R] or None: rows whose prompt isn't complete yet; vLLM throws their samples away."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.desk = Desk()
        self.is_partial: np.typing.NDArray[np.bool_] | None = None
        self._table: RowTable[Entry] = RowTable()

    def is_argmax_invariant(self) -> bool:
        """False: it is asked at temperature 0 too."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Rows that changed hands since the last step; None where none did."""
        if batch_update is not None:
            self._table.update(
                batch_update.removed,
                [(row, _entry(params, output_tokens)) for row, params, _, output_tokens in batch_update.added],
                [(a, b, direction == MoveDirectionality.SWAP) for a, b, direction in batch_update.moved],
            )

    def apply(self, logits: Tensor) -> Tensor:
        drawn = [entry for entry in self._table.entries() if self.is_partial is None or not self.is_partial[entry[0]]]
        rows, entries = [row for row, _ in drawn], [entry for _, entry in drawn]
        return self.desk.draw(logits, rows, [asked for asked, _ in entries], [len(tokens) for _, tokens in entries])


def _entry(params: Any, output_tokens: list[int]) -> Entry | None:
    asked = Asked.of(params.extra_args)
    return None if asked is None else (asked, output_tokens)
