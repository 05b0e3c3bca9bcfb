"""Honest groups with a few cheated ones among them.

What it gains in earnest: to hide. Caught by: the same checks where one cheated rollout is enough, pooled statistics
where many tokens have to tell.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.rollouts import Rollout
from tests.attacks.arena import Arena
from tests.attacks.attack import Attack

PERIOD = 10


@dataclass(frozen=True)
class Tenth(Attack):
    """Every tenth rollout is another attack's."""

    attack: Attack = Attack("", "")

    @property
    def generates(self) -> bool:  # type: ignore[override]
        return self.attack.generates

    def rows(self, arena: Arena, counter: int) -> list[Rollout]:
        good, bad = Attack("", "").rows(arena, counter), self.attack.rows(arena, counter)
        return [b if i % PERIOD == 0 else g for i, (g, b) in enumerate(zip(good, bad, strict=True))]

    def is_lie(self, row: Rollout, honest: Rollout) -> bool:
        return self.attack.is_lie(row, honest)
