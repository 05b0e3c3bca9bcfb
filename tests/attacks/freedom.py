"""The choice that numerical noise leaves to a worker, in bits per 1,000 tokens.

In: an arena. Out: `Freedom`. The bound is the product's own (`protocol/checks/sampling.py`), over honest rollouts. What
is shown is a worker that takes the other branch in as many rollouts as pass, nearest ties first, one each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.checks.measurements import Measurements
from protocol.checks.sampling import freedom_bits
from protocol.reasons import Outcome
from tests.attacks.arena import Arena
from tests.attacks.attack import Attack
from tests.attacks.branches import Branched, gaps_of
from tests.attacks.reading import renumbered
from tests.attacks.trial import tried


@dataclass(frozen=True)
class Freedom:
    """Means over the arena's tasks. `num_ties` tokens have a second best within the largest margin that passes."""

    num_tokens: int
    num_ties: float
    bits_bound: float
    num_unnoticed: float
    """Rollouts of a file that took another branch and passed."""

    @property
    def bits_bound_per_1000(self) -> float:
        return 1000 * self.bits_bound / self.num_tokens

    @property
    def bits_shown_per_1000(self) -> float:
        return 1000 * self.num_unnoticed / self.num_tokens


def freedom(arena: Arena) -> Freedom:
    limits = arena.rules.thresholds
    tokens, ties, bits, unnoticed = [], [], [], []
    for counter in range(arena.num_tasks):
        rows = Attack("", "").rows(arena, counter)
        parts = [renumbered(reading.found, i) for i, reading in enumerate(arena.read(counter, rows))]
        found = Measurements.joined(parts)
        tokens.append(found.num_tokens)
        reach = limits.sampling_margin_max.at(found.num_tokens).reject
        ties.append(int((found.rows.runner_up_margins <= reach).sum()))
        bits.append(freedom_bits(found, limits))
        unnoticed.append(_unnoticed(arena, counter))
    means = [float(np.mean(values)) for values in (ties, bits, unnoticed)]
    return Freedom(round(float(np.mean(tokens))), *means)


def _unnoticed(arena: Arena, counter: int) -> int:
    """The most rollouts of a file that can take their nearest other branch before it is refused."""
    honest, branched = (tried(arena, attack, [counter]) for attack in (Attack("", ""), Branched("", "")))
    order = np.argsort([gaps.min() for gaps in gaps_of(arena, counter)], kind="stable")
    file = list(honest.rollouts)
    for count, number in enumerate(order):
        file[number] = branched.rollouts[number]
        if honest.judge(file).outcome != Outcome.ACCEPT:
            return count
    return len(order)
