"""A simulated worker: honest as it stands, and a lie where a subclass replaces a stage.

In: an `Arena` and a task's counter. Out: the dossier that a verifier gets of it. The stages are those of
`worker/loop.py`: completions, proofs, rewards, rows, file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from protocol.engines.base import Completion
from protocol.prover import proofs_of, reward_of, rollout_of
from protocol.rollouts import Rollout
from verifier.case import Dossier

if TYPE_CHECKING:
    from tests.attacks.arena import Arena

FindTwin = Callable[[str, str, str], str | None]


@dataclass(frozen=True)
class Attack:
    """One lie. `lie` is what differs from honest work; `close` says why honest work looks much the same."""

    name: str
    lie: str
    close: str = ""
    generates: ClassVar[bool] = False
    """Whether it needs tokens of its own, which is what takes long."""

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        """What the engine makes of the task's requests, in task order."""
        return arena.draw(counter)

    def proofs(self, arena: Arena, counter: int, completions: Sequence[Completion]) -> list[bytes]:
        return proofs_of(completions, arena.rules.toploc)

    def rewards(self, arena: Arena, counter: int, completions: Sequence[Completion]) -> list[float]:
        return [reward_of(arena.environment, arena.prompt_of(counter, c.sample), c) for c in completions]

    def rows(self, arena: Arena, counter: int) -> list[Rollout]:
        """The file's rows, in task order."""
        completions = self.completions(arena, counter)
        parts = (completions, self.proofs(arena, counter, completions), self.rewards(arena, counter, completions))
        return [rollout_of(arena.prompt_of(counter, c.sample), c, p, r, 0) for c, p, r in zip(*parts, strict=True)]

    def dossier(self, arena: Arena, counter: int) -> Dossier:
        """The signed file."""
        return arena.world.dossier(self.rows(arena, counter), counter)

    def is_lie(self, row: Rollout, honest: Rollout) -> bool:
        """Whether an honest worker would have sent another row."""
        return row.row_bytes() != honest.row_bytes()

    def find_twin(self, arena: Arena) -> FindTwin:
        """What the verifier remembers of this node; a worker that repeats itself has a past."""
        return lambda node, completions_hash, submission_id: None


class Proved(Attack):
    """A lie about tokens alone: proofs and log-probs are the right model's, from one prefill over them."""

    def rows(self, arena: Arena, counter: int) -> list[Rollout]:
        completions = self.completions(arena, counter)
        rewards = self.rewards(arena, counter, completions)
        return arena.proved(counter, completions, rewards)

    def is_lie(self, row: Rollout, honest: Rollout) -> bool:
        """The same tokens, proved in a prefill, are honest work."""
        return not np.array_equal(row.output_tokens, honest.output_tokens)
