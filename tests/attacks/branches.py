"""Branch grinding: at near-ties numerical noise leaves a choice, and a worker takes the branch that it likes.

What it gains in earnest: the best of 2^k completions that noise permits. Caught by: the largest margin where the tie
isn't near enough, the count of flips where there are too many; what is left is the freedom that `freedom.py` counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from protocol.engines.base import Completion
from protocol.rollouts import Int32Array
from protocol.sampling import noise_keys
from protocol.sampling_torch import as_tensor, draw_tokens
from tests.attacks.arena import RIGHT, Arena
from tests.attacks.attack import Attack, Proved
from tests.attacks.decode import decode
from tests.attacks.other_draws import best, finished


@dataclass(frozen=True)
class BranchGrinding(Proved):
    """Of each rollout all 2^`num_ties` ways through its nearest ties within `within` nats; the best is sent."""

    num_ties: int = 1
    within: float = 0.01

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        readings = arena.read(counter, Attack("", "").rows(arena, counter))
        ways = [arena.draw(counter, model=RIGHT)]
        ties = [self._ties(reading.found.rows.runner_up_margins) for reading in readings]
        for number in range(1, 2**self.num_ties):
            ways.append(self._way(arena, counter, ties, number))
        rewards = [self.rewards(arena, counter, each) for each in ways]
        return [best(column, scores) for column, scores in zip(zip(*ways), zip(*rewards))]  # noqa: B905

    def _ties(self, gaps: np.ndarray) -> list[int]:
        """Positions of the nearest ties, nearest first."""
        nearest = np.argsort(gaps, kind="stable")[: self.num_ties]
        return [int(position) for position in nearest if gaps[position] <= self.within]

    def _way(self, arena: Arena, counter: int, ties: list[list[int]], number: int) -> list[Completion]:
        """The completions where each rollout takes its second best token at those ties that `number` has bits for."""
        turns = [{position for bit, position in enumerate(each) if number >> bit & 1} for each in ties]
        sampling, seed = arena.rules.sampling, arena.world.seed(counter)

        def choose(position: int, logits: list[Tensor]) -> Tensor:
            numbers = list(range(len(logits[0])))
            keys = as_tensor(noise_keys(seed, numbers, [position for _ in numbers]))
            drawn = draw_tokens(logits[0], keys, sampling)[0]
            without = logits[0].scatter(1, drawn[:, None], -torch.inf)
            second = draw_tokens(without, keys, sampling)[0]
            turned = torch.tensor([position in turn for turn in turns])
            return torch.where(turned, second, drawn)

        def made() -> list[Int32Array]:
            prompts = arena.prompt_tokens(counter)
            return decode([arena.model(RIGHT)], prompts, choose, sampling.max_new_tokens, arena.eos_ids)

        rows = arena.cache.get(f"{arena.identity} {sampling} {self} {turns} {counter}", made)
        return [finished(arena, sample, tokens) for sample, tokens in enumerate(rows)]
