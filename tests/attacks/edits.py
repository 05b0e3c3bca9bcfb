"""Single tokens of honest work replaced.

What it gains in earnest: a wrong answer made right. Caught by: the margin of the replaced token, one is enough;
where the edit came after the proofs, by TOPLOC too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from protocol.engines.base import Completion
from protocol.rollouts import Rollout
from tests.attacks.arena import RIGHT, Arena
from tests.attacks.attack import Attack


@dataclass(frozen=True)
class Edited(Attack):
    """A share of all tokens becomes the likeliest other one; `proved` makes proofs and log-probs anew."""

    share: float = 0.01
    proved: bool = True

    def rows(self, arena: Arena, counter: int) -> list[Rollout]:
        honest = arena.draw(counter)
        source = np.random.default_rng(counter)
        edited = [_edited(arena, c, source.random(len(c.output_tokens)) < self.share) for c in honest]
        rewards = self.rewards(arena, counter, edited)
        if self.proved:
            return arena.proved(counter, edited, rewards)
        stale = Attack("", "").rows(arena, counter)
        return [
            replace(row, output_tokens=c.output_tokens, task_reward=reward)
            for row, c, reward in zip(stale, edited, rewards, strict=True)
        ]

    def is_lie(self, row: Rollout, honest: Rollout) -> bool:
        return not np.array_equal(row.output_tokens, honest.output_tokens)


@torch.inference_mode()
def _edited(arena: Arena, honest: Completion, chosen: np.ndarray) -> Completion:
    """The last token stays: it may be EOS."""
    chosen[-1] = False
    if not chosen.any():
        return honest
    logits = arena.model(RIGHT).logits(honest.hidden_rows.float())
    logits[:, list(arena.eos_ids)] = -torch.inf
    logits.scatter_(1, torch.from_numpy(honest.output_tokens.astype(np.int64))[:, None], -torch.inf)
    others = logits.argmax(dim=1).numpy().astype(np.int32)
    return replace(honest, output_tokens=np.where(chosen, others, honest.output_tokens).astype(np.int32))
