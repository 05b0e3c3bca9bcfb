"""Tokens of the right model that its noise didn't draw; proofs and log-probs are the right model's too.

What it gains in earnest: influence on the training, cheaper decoding, better rewards. Caught by: the margins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from protocol.canonical import sha256
from protocol.engines.base import Completion
from protocol.rules import SamplingRules
from protocol.sampling import Keys, draw_tokens, noise_keys
from tests.attacks.arena import RIGHT, Arena, completion
from tests.attacks.attack import Proved
from tests.attacks.decode import decode


@dataclass(frozen=True)
class OtherSampling(Proved):
    """Sampling rules of the worker's own."""

    generates: ClassVar[bool] = True
    changes: dict[str, float] = field(default_factory=dict)

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        sampling = arena.rules.sampling.model_copy(update=self.changes)
        return arena.draw(counter, model=RIGHT, sampling=sampling)


@dataclass(frozen=True)
class WrongSeed(Proved):
    """Noise of the worker's own: one try among many."""

    generates: ClassVar[bool] = True
    number: int = 1

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        return arena.draw(counter, model=RIGHT, seed=other_seed(arena, counter, self.number))


@dataclass(frozen=True)
class BestOf(Proved):
    """The best of several tries for each rollout, by reward; the first try is the honest one."""

    generates: ClassVar[bool] = True
    num_tries: int = 4

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        tries = [arena.draw(counter)]
        for number in range(1, self.num_tries):
            tries.append(arena.draw(counter, model=RIGHT, seed=other_seed(arena, counter, number)))
        rewards = [self.rewards(arena, counter, each) for each in tries]
        return [best(column, scores) for column, scores in zip(zip(*tries), zip(*rewards))]  # noqa: B905


@dataclass(frozen=True)
class Drafted(Proved):
    """Speculative decoding without acceptance: of each `period` tokens, the first is the right model's."""

    generates: ClassVar[bool] = True
    draft: str = ""
    period: int = 4

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        sampling = arena.rules.sampling
        seed = arena.world.seed(counter)

        def choose(position: int, logits: list[Tensor]) -> Tensor:
            numbers = list(range(len(logits[0])))
            return drawn(
                logits[position % self.period > 0], noise_keys(seed, numbers, [position] * len(numbers)), sampling
            )

        def made() -> list[Completion]:
            models = [arena.model(RIGHT), arena.model(self.draft)]
            rows = decode(models, arena.prompt_tokens(counter), choose, sampling.max_new_tokens, arena.eos_ids)
            return [finished(arena, sample, tokens) for sample, tokens in enumerate(rows)]

        return arena.cache.get(f"{arena.identity} {sampling} {self} {counter}", made)


def drawn(logits: Tensor, keys: Keys, sampling: SamplingRules) -> Tensor:
    """int64 [B]: the tokens that the noise of these keys draws."""
    return torch.from_numpy(draw_tokens(logits.float().numpy(), keys, sampling)[0])


def other_seed(arena: Arena, counter: int, number: int) -> bytes:
    return sha256(arena.world.seed(counter) + bytes([number]))


def best(tries: Sequence[Completion], rewards: Sequence[float]) -> Completion:
    """The one with the highest reward; among equals, one that a taste of the worker's own prefers."""
    return max(zip(tries, rewards, strict=True), key=lambda pair: (pair[1], sha256(pair[0].output_tokens.tobytes())))[0]


def finished(arena: Arena, sample: int, tokens: torch.Tensor | object) -> Completion:
    """Tokens of a loop of one's own, with the reason why they end."""
    ids = completion(sample, tokens, "length")  # type: ignore[arg-type]
    stopped = int(ids.output_tokens[-1]) in arena.eos_ids
    return completion(sample, ids.output_tokens, "stop" if stopped else "length")
