"""The hidden states that given completions were sampled from, in one packed pass.

In: a model and rollouts. Out: one row an output token; row i of a completion is the state that its token i was
sampled from (row 0: the last prompt token's). A prompt that several rollouts share goes through the model once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from protocol.forward import CausalLM
from protocol.packing import NOTHING, Packing
from protocol.rollouts import Int32Array, Rollout

Rows = npt.NDArray[np.int64]


def sampled_states(model: CausalLM, rollouts: Sequence[Rollout]) -> Tensor:
    """Hidden states [N, H] that the N output tokens of these rollouts were sampled from."""
    prompts, places = distinct([rollout.input_tokens for rollout in rollouts])
    # The last output token is never fed, so a completion of one token has nothing to add to its prompt.
    fed = [rollout.output_tokens[:-1] for rollout in rollouts]
    going_on = [(place, tokens) for place, tokens in zip(places, fed, strict=True) if len(tokens)]
    sequences = [*prompts, *(tokens for _, tokens in going_on)]
    continues = [NOTHING] * len(prompts) + [place for place, _ in going_on]
    packing = Packing.of([len(tokens) for tokens in sequences], continues)
    tokens = torch.from_numpy(np.concatenate(sequences).astype(np.int64))
    states: Tensor = model(tokens, packing)[torch.from_numpy(_sampled_rows(prompts, places, fed))]
    return states


def _sampled_rows(prompts: Sequence[Int32Array], places: Sequence[int], fed: Sequence[Int32Array]) -> Rows:
    """int64 [N]: for each rollout its prompt's last row, then its own."""
    last_rows = np.cumsum([len(prompt) for prompt in prompts]) - 1
    starts = last_rows[-1] + 1 + np.cumsum([0, *(len(tokens) for tokens in fed)])
    parts = [
        np.concatenate([[last_rows[place]], np.arange(start, start + len(tokens))])
        for place, start, tokens in zip(places, starts[:-1], fed, strict=True)
    ]
    return np.concatenate(parts).astype(np.int64)


def distinct(prompts: Sequence[Int32Array]) -> tuple[list[Int32Array], list[int]]:
    """The different prompts, and the place of each prompt among them: a group's prompt is computed once."""
    places: dict[bytes, int] = {}
    of_each = [places.setdefault(prompt.astype(np.int32).tobytes(), len(places)) for prompt in prompts]
    return [np.frombuffer(prompt, dtype=np.int32) for prompt in places], of_each
