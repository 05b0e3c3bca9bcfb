"""Another question than the one that the seed asks.

What it gains in earnest: easier questions, or answers that a hint makes better. Caught by: the prompt re-derived from
the seed; where the right one is claimed, by TOPLOC and the margins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from protocol.engines.base import Completion
from protocol.rollouts import Int32Array, Rollout
from tests.attacks.arena import RIGHT, Arena
from tests.attacks.attack import Attack, Proved


def other_prompts(arena: Arena, counter: int) -> list[Int32Array]:
    """Those of another task."""
    return arena.prompt_tokens(arena.other(counter))


def hinted_prompts(arena: Arena, counter: int) -> list[Int32Array]:
    """The right ones after a system prompt: for models that know no text, another question and its answer's start."""
    return [
        np.concatenate([hint, asked]).astype(np.int32)
        for hint, asked in zip(other_prompts(arena, counter), arena.prompt_tokens(counter), strict=True)
    ]


@dataclass(frozen=True)
class OtherPrompt(Attack):
    """Another question, and the file says so."""

    def rows(self, arena: Arena, counter: int) -> list[Rollout]:
        asked = other_prompts(arena, counter)
        honest = Attack("", "").rows(arena, arena.other(counter))
        return [replace(row, input_tokens=tokens) for row, tokens in zip(honest, asked, strict=True)]


@dataclass(frozen=True)
class HiddenPrompt(Attack):
    """Another question or a system prompt before it; the file claims the right one, proofs are what the model did."""

    generates: ClassVar[bool] = True
    hinted: bool = False

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        asked = hinted_prompts(arena, counter) if self.hinted else other_prompts(arena, counter)
        return arena.draw(counter, model=RIGHT, prompts=asked)


@dataclass(frozen=True)
class HiddenPromptProved(Proved):
    """The same, with proofs and log-probs of a prefill after the right prompt."""

    generates: ClassVar[bool] = True
    hinted: bool = False

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        asked = hinted_prompts(arena, counter) if self.hinted else other_prompts(arena, counter)
        return arena.draw(counter, model=RIGHT, prompts=asked)
