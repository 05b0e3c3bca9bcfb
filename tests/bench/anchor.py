"""What verification is measured against: one plain forward of the transformers library over the same tokens.

In: SmolLM2's folder and rollouts. Out: a call that computes hidden states of whole sequences (prompt and completion of
each rollout, as that library does) and logits at the sampled positions, in float32. Two ways: sequences packed into one
row with positions that restart and a block-diagonal mask, or padded to one batch. The quicker one is the anchor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from protocol.rollouts import Rollout
from verifier.calibration.reference import load_transformers

LOGIT_ROWS = 256


@dataclass(frozen=True, eq=False)
class Anchor:
    """Example: `Anchor.of(folder, rollouts).packed()`, float32 [N, H] at the N sampled positions."""

    model: Any
    sequences: Sequence[Tensor]
    is_sampled: Sequence[Tensor]

    @classmethod
    def of(cls, folder: Path, rollouts: Sequence[Rollout]) -> Anchor:
        sequences = [torch.from_numpy(np.concatenate([r.input_tokens, r.output_tokens[:-1]])).long() for r in rollouts]
        sampled = [torch.arange(len(s)) >= len(r.input_tokens) - 1 for s, r in zip(sequences, rollouts, strict=True)]
        return cls(load_transformers(folder, "float32", "auto"), sequences, sampled)

    @property
    def ways(self) -> dict[str, Callable[[], Tensor]]:
        return {"packed": self.packed, "padded": self.padded}

    @torch.inference_mode()
    def packed(self) -> Tensor:
        """Positions that restart tell the library where sequences begin; it makes the mask of them."""
        tokens = torch.cat(list(self.sequences))[None]
        positions = torch.cat([torch.arange(len(sequence)) for sequence in self.sequences])[None]
        hidden = self.model.model(input_ids=tokens, position_ids=positions, use_cache=False).last_hidden_state[0]
        return self._with_logits(hidden[torch.cat(list(self.is_sampled))])

    @torch.inference_mode()
    def padded(self) -> Tensor:
        tokens = torch.nn.utils.rnn.pad_sequence(list(self.sequences), batch_first=True)
        lengths = torch.tensor([len(sequence) for sequence in self.sequences])
        mask = (torch.arange(tokens.shape[1]) < lengths[:, None]).long()
        hidden = self.model.model(input_ids=tokens, attention_mask=mask, use_cache=False).last_hidden_state
        rows = [row[: len(wanted)][wanted] for row, wanted in zip(hidden, self.is_sampled, strict=True)]
        return self._with_logits(torch.cat(rows))

    def _with_logits(self, hidden: Tensor) -> Tensor:
        for rows in hidden.split(LOGIT_ROWS):  # a block at a time, as the verifier takes them
            self.model.lm_head(rows)
        return hidden
