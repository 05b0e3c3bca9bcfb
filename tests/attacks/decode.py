"""A decoding loop that asks which token comes next: for workers that don't draw as the rules say.

In: models that decode side by side, prompts, and a chooser. Out: token ids, cut after EOS.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch
from torch import Tensor

from protocol.forward import CausalLM
from protocol.packing import Packing
from protocol.rollouts import Int32Array

Choose = Callable[[int, list[Tensor]], Tensor]
"""(position, logits [B, V] of each model) to the next tokens, int64 [B]."""


@torch.inference_mode()
def decode(
    models: Sequence[CausalLM],
    prompts: Sequence[Int32Array],
    choose: Choose,
    max_new_tokens: int,
    eos_ids: Collection[int],
) -> list[Int32Array]:
    """Output tokens int32 [T] of each prompt; every model reads the tokens that were chosen."""
    packing = Packing.of([len(prompt) for prompt in prompts])
    flat = torch.from_numpy(np.concatenate(prompts).astype(np.int64))
    width = max(packing.lengths) + max_new_tokens
    started = [model.prefill(flat, packing.lengths, width) for model in models]
    hidden, caches = [h[packing.last_rows] for h, _ in started], [cache for _, cache in started]
    columns: list[Tensor] = []
    ended = torch.zeros(len(prompts), dtype=torch.bool)
    while len(columns) < max_new_tokens and not bool(ended.all()):
        if columns:
            hidden = [m.step(columns[-1], cache) for m, cache in zip(models, caches, strict=True)]
        tokens = choose(len(columns), [m.logits(h) for m, h in zip(models, hidden, strict=True)])
        columns.append(tokens)
        ended |= torch.isin(tokens, torch.tensor(list(eos_ids)))
    return [cut(row, eos_ids) for row in torch.stack(columns, dim=1).numpy().astype(np.int32)]


def cut(tokens: Int32Array, eos_ids: Collection[int]) -> Int32Array:
    """Up to and with the first EOS."""
    ends = np.flatnonzero(np.isin(tokens, list(eos_ids)))
    return tokens[: ends[0] + 1] if len(ends) else tokens
