"""Prompts that rollouts continue: each goes through the model once, and its blocks are read by all of its rollouts.

In: requests that are let in. Out: for each its block table, and the hidden state that its first token is drawn from.
The blocks that a prompt fills are shared; what is left over is copied into each rollout's first own block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from protocol.engines.base import Request
from protocol.engines.decoder import Decoder
from protocol.engines.paged_cache import BLOCK_TOKENS, Blocks, PagedCache, num_blocks
from protocol.packing import Packing
from protocol.sampling import Tokens

SHORT_TOKENS = 256
"""Prompts of so many tokens go along with the next step of the rows: a row a token, and no pass of their own."""


@dataclass(eq=False)
class SharedPrompt:
    """`blocks` hold the prompt, the last perhaps in part; `hidden` [H], once computed, is its last token's state."""

    request: Request
    blocks: Blocks
    hidden: Tensor | None = None
    num_rows: int = 0

    @property
    def num_full(self) -> int:
        """Blocks that the prompt fills, and rows read."""
        return len(self.request.input_tokens) // BLOCK_TOKENS

    @property
    def state(self) -> Tensor:
        """`hidden`, which is computed."""
        assert self.hidden is not None
        return self.hidden

    def as_rows(self) -> tuple[Tokens, Tokens]:
        """Its tokens and their positions, int64 [P]: a row each, of which the later ones see the earlier ones."""
        return self.request.input_tokens.astype(np.int64), np.arange(len(self.request.input_tokens))


@dataclass(eq=False)
class SharedPrompts:
    """The prompts of the rows that decode; one is dropped when its last row leaves."""

    decoder: Decoder
    cache: PagedCache
    _known: dict[bytes, SharedPrompt] = field(default_factory=dict)

    def num_needed(self, request: Request) -> int:
        """Blocks that this request takes if it is let in now."""
        own = num_own_blocks(request)
        return own if _key(request) in self._known else own + num_blocks(len(request.input_tokens))

    def claim(self, request: Request) -> tuple[SharedPrompt, Blocks]:
        """The prompt, and blocks for what the rollout adds to it; there are enough (`num_needed`)."""
        key = _key(request)
        if key not in self._known:
            self._known[key] = SharedPrompt(request, self.cache.take(num_blocks(len(request.input_tokens))))
        prompt = self._known[key]
        prompt.num_rows += 1
        return prompt, self.cache.take(num_own_blocks(request))

    def new(self) -> list[SharedPrompt]:
        """The prompts whose states aren't computed yet. Those that are long are now, in one packed pass."""
        new = [prompt for prompt in self._known.values() if prompt.hidden is None]
        long = [prompt for prompt in new if len(prompt.request.input_tokens) > SHORT_TOKENS]
        if long:
            self._compute(long)
        return [prompt for prompt in new if prompt.hidden is None]

    def _compute(self, new: Sequence[SharedPrompt]) -> None:
        packing = Packing.of([len(prompt.request.input_tokens) for prompt in new])
        tokens = np.concatenate([prompt.request.input_tokens for prompt in new]).astype(np.int64)
        blocks = [prompt.blocks for prompt in new]
        hidden = self.decoder.prefill(torch.from_numpy(tokens), packing, self.cache, blocks)
        for prompt, row in zip(new, hidden[packing.last_rows], strict=True):
            prompt.hidden = row

    def fill(self, claims: Sequence[tuple[SharedPrompt, Blocks]]) -> None:
        """Copy what is left over of each computed prompt into the first own block of its new rows."""
        firsts: dict[SharedPrompt, Blocks] = {}
        for prompt, own in claims:
            if len(prompt.blocks) > prompt.num_full:
                firsts.setdefault(prompt, []).append(own[0])
        for prompt, targets in firsts.items():
            self.cache.copy(prompt.blocks[-1], targets)

    def release(self, prompt: SharedPrompt, own: Blocks) -> None:
        """A row leaves: its blocks are free, and the prompt's too if it was the last one."""
        self.cache.give(own)
        prompt.num_rows -= 1
        if not prompt.num_rows:
            self.cache.give(prompt.blocks)
            del self._known[_key(prompt.request)]


def num_own_blocks(request: Request) -> int:
    """Blocks after those that its prompt fills; the last token drawn is never fed."""
    prompt = len(request.input_tokens)
    return num_blocks(prompt + request.sampling.max_new_tokens - 1) - prompt // BLOCK_TOKENS


def _key(request: Request) -> bytes:
    return request.input_tokens.astype(np.int32).tobytes()
