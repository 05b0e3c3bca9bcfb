"""Completions that end elsewhere than the model ended them.

What it gains in earnest: less work for the same group, or more units for the same work. Caught by: the rules of
termination, which are exact, and the margin of the EOS that is or isn't there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.engines.base import Completion
from tests.attacks.arena import Arena, completion
from tests.attacks.attack import Attack, Proved


@dataclass(frozen=True)
class Truncated(Attack):
    """Half of each completion, said to have reached its limit."""

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        return [_first(c, max(1, len(c.output_tokens) // 2)) for c in arena.draw(counter)]


@dataclass(frozen=True)
class ForcedEos(Proved):
    """Half of each completion, then EOS."""

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        halves = [c.output_tokens[: len(c.output_tokens) // 2] for c in arena.draw(counter)]
        return [
            completion(sample, np.append(half, arena.eos_ids[0]).astype(np.int32), "stop")
            for sample, half in enumerate(halves)
        ]


@dataclass(frozen=True)
class Padded(Proved):
    """EOS is left out and the last token repeated until the limit: more units."""

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        return [self._padded(arena, c) for c in arena.draw(counter)]

    def _padded(self, arena: Arena, honest: Completion) -> Completion:
        tokens, limit = honest.output_tokens, arena.rules.sampling.max_new_tokens
        if honest.finish_reason != "stop" or len(tokens) == 1:
            return honest
        filler = np.full(limit - len(tokens) + 1, tokens[-2], dtype=np.int32)
        return completion(honest.sample, np.append(tokens[:-1], filler).astype(np.int32), "length")


@dataclass(frozen=True)
class PaddedAfterEos(Proved):
    """EOS stays and the completion goes on after it."""

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        limit = arena.rules.sampling.max_new_tokens
        return [
            completion(c.sample, np.resize(c.output_tokens, limit).astype(np.int32), "length")
            for c in arena.draw(counter)
        ]


def _first(honest: Completion, num_tokens: int) -> Completion:
    return Completion(
        honest.request,
        honest.output_tokens[:num_tokens],
        honest.output_logprobs[:num_tokens],
        honest.hidden_rows[:num_tokens],
        "length",
    )
