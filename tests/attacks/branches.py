"""Branch grinding: at near-ties numerical noise leaves a choice, and a worker takes the branch that it likes.

What it gains in earnest: the best of 2^k completions that noise permits. Caught by: the largest margin where the tie
isn't near enough, the count of flips where there are too many; what is left is the freedom that `freedom.py` counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from protocol.engines.base import Completion
from protocol.rollouts import Int32Array
from protocol.sampling import noise_keys
from tests.attacks.arena import RIGHT, Arena
from tests.attacks.attack import Attack, Proved
from tests.attacks.decode import decode
from tests.attacks.other_draws import best, drawn, finished

SUNK = -1e4
"""A logit that no noise lifts."""


@dataclass(frozen=True)
class BranchGrinding(Proved):
    """Of each rollout all 2^`num_ties` ways through its nearest ties within `within` nats; the best is sent."""

    generates: ClassVar[bool] = True
    num_ties: int = 1
    within: float = 0.01

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        ties = [near(gaps, self.num_ties, self.within) for gaps in gaps_of(arena, counter)]
        ways = [arena.draw(counter, model=RIGHT)]
        for number in range(1, 2**self.num_ties):
            ways.append(way(arena, counter, [{p for i, p in enumerate(tie) if number >> i & 1} for tie in ties]))
        rewards = [self.rewards(arena, counter, each) for each in ways]
        return [best(column, scores) for column, scores in zip(zip(*ways), zip(*rewards))]  # noqa: B905


@dataclass(frozen=True)
class Branched(Proved):
    """Every rollout takes the other branch at its nearest tie, however far that is: what `freedom.py` picks from."""

    generates: ClassVar[bool] = True

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        return way(arena, counter, [set(near(gaps, 1, np.inf)) for gaps in gaps_of(arena, counter)])


def gaps_of(arena: Arena, counter: int) -> list[np.ndarray]:
    """Of each honest rollout, how far the second best noised logit lies below the best at each token, float64 [T]."""
    readings = arena.read(counter, Attack("", "").rows(arena, counter))
    return [reading.found.rows.runner_up_margins for reading in readings]


def near(gaps: np.ndarray, count: int, within: float) -> list[int]:
    """Positions of the nearest ties, nearest first."""
    nearest = np.argsort(gaps, kind="stable")[:count]
    return [int(position) for position in nearest if gaps[position] <= within]


def way(arena: Arena, counter: int, turns: Sequence[Collection[int]]) -> list[Completion]:
    """Completions that take the second best token at each rollout's `turns`, and the drawn one elsewhere."""
    sampling, seed = arena.rules.sampling, arena.world.seed(counter)

    def choose(position: int, logits: list[Tensor]) -> Tensor:
        keys = noise_keys(seed, list(range(len(turns))), [position] * len(turns))
        tokens = drawn(logits[0], keys, sampling)
        rows = [row for row, turn in enumerate(turns) if position in turn]
        if rows:
            without = logits[0][rows].scatter(1, tokens[rows][:, None], SUNK)
            tokens[rows] = drawn(without, keys[rows], sampling)
        return tokens

    def made() -> list[Int32Array]:
        prompts = arena.prompt_tokens(counter)
        return decode([arena.model(RIGHT)], prompts, choose, sampling.max_new_tokens, arena.eos_ids)

    rows = arena.cache.get(f"{arena.identity} {sampling} way {[sorted(t) for t in turns]} {counter}", made)
    return [finished(arena, sample, tokens) for sample, tokens in enumerate(rows)]
