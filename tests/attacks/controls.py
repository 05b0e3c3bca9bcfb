"""Honest work, which must pass: every rollout of it is tried, as if each were a lie.

In: an arena. Out: the same rollouts as the task asks for, computed in other ways.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.engines.base import Completion
from protocol.rollouts import Rollout
from tests.attacks.arena import Arena
from tests.attacks.attack import Attack, Proved


@dataclass(frozen=True)
class Honest(Attack):
    """With `max_batch`, generated so many at a time."""

    max_batch: int | None = None
    model: str | None = None

    @property
    def generates(self) -> bool:  # type: ignore[override]
        return self.max_batch is not None

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        return arena.draw(counter, max_batch=self.max_batch, model=self.model)

    def is_lie(self, row: Rollout, honest: Rollout) -> bool:
        return True


@dataclass(frozen=True)
class HonestProved(Proved):
    """Proofs and log-probs from a prefill instead of decoding."""

    def is_lie(self, row: Rollout, honest: Rollout) -> bool:
        return True
