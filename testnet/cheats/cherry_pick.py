"""Generates each rollout again with other noise until its reward is good.

What it gains in earnest: influence on the training: honest proofs of tokens that nobody drew. Caught
by: the sampling margin, since the task's seed fixes the noise.
"""

from __future__ import annotations

from dataclasses import replace

from protocol.canonical import sha256
from protocol.engines.base import Completion, generate
from protocol.prover import in_task_order, reward_of
from testnet.cheats.dishonest import Dishonest
from worker.work import Work

NUM_TRIES = 4


class CherryPick(Dishonest):
    """Keeps the best of several tries for each rollout."""

    def completions(self, work: Work) -> list[Completion]:
        best = super().completions(work)
        for number in range(1, NUM_TRIES):
            seed = sha256(work.seed + bytes([number]))
            requests = [replace(request, seed=seed) for request in work.requests]
            tries = in_task_order(list(generate(self.engine, requests)), work.num_rollouts)
            best = [max(pair, key=lambda c: self._reward(work, c)) for pair in zip(best, tries, strict=True)]
        return best

    def _reward(self, work: Work, completion: Completion) -> float:
        return reward_of(work.environment, work.prompt_of(completion.sample), completion)
