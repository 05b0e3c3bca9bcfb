"""Rollouts of another model than the policy version that the task names, honestly proved by that one.

What it saves in earnest: a smaller, older or rounded model. Caught by: TOPLOC; where tokens differ, the margins too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from protocol.engines.base import Completion
from tests.attacks.arena import Arena
from tests.attacks.attack import Attack, Proved


@dataclass(frozen=True)
class OtherModel(Attack):
    """Everything by the model of this name (`models.py`): tokens, states, log-probs."""

    generates: ClassVar[bool] = True
    model: str = ""

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        return arena.draw(counter, model=self.model)


@dataclass(frozen=True)
class OtherModelProved(Proved):
    """Its tokens, drawn with the right noise; the right model makes proofs and log-probs in one prefill.

    What it saves: all decoding steps of the large model.
    """

    generates: ClassVar[bool] = True
    model: str = ""

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        return arena.draw(counter, model=self.model)
