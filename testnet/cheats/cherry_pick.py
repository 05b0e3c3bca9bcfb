"""Generates each rollout again with other noise until its reward is good.

What it gains in earnest: influence on the training: honest proofs of tokens that nobody drew. Caught
by: the sampling margin, since the task's seed fixes the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from protocol.canonical import sha256
from protocol.engines.base import Completion, Request
from protocol.prover import reward_of
from testnet.cheats.dishonest import Dishonest
from worker.work import Work

NUM_TRIES = 4


class CherryPick(Dishonest):
    """Keeps the best of several tries for each rollout."""

    def requests(self, work: Work) -> list[Request]:
        seeds = [work.seed, *(sha256(work.seed + bytes([number])) for number in range(1, NUM_TRIES))]
        return [replace(request, seed=seed) for seed in seeds for request in work.requests]

    def completions(self, work: Work, finished: Sequence[Completion]) -> list[Completion]:
        best: dict[int, Completion] = {}
        for one in sorted(finished, key=lambda completion: completion.request.seed != work.seed):
            known = best.setdefault(one.sample, one)
            best[one.sample] = max(known, one, key=lambda completion: self._reward(work, completion))
        return super().completions(work, list(best.values()))

    def _reward(self, work: Work, completion: Completion) -> float:
        return reward_of(work.environment, work.prompt_of(completion.sample), completion)
