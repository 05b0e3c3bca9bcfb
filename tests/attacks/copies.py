"""Work that was done for another task.

What it saves in earnest: all of it. Caught by: prompts re-derived from the seed, and margins under this task's noise;
the same completions twice from one node by memory alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from protocol.engines.base import Completion
from protocol.rollouts import Rollout
from protocol.toploc.encoding import num_chunks
from tests.attacks.arena import Arena
from tests.attacks.attack import Attack, FindTwin, Proved


@dataclass(frozen=True)
class Copied(Attack):
    """The rows of another task as they are, for this one: copied from another node."""

    def rows(self, arena: Arena, counter: int) -> list[Rollout]:
        return Attack("", "").rows(arena, arena.other(counter))


@dataclass(frozen=True)
class Replayed(Copied):
    """The same from the node's own past, which the verifier remembers."""

    def find_twin(self, arena: Arena) -> FindTwin:
        known = {
            arena.world.case(Attack("", "").rows(arena, counter), counter).completions_hash: f"submission {counter}"
            for counter in range(arena.num_tasks)
        }
        return lambda node, completions_hash, submission_id: known.get(completions_hash)


@dataclass(frozen=True)
class CopiedText(Proved):
    """Another task's completions after this task's prompts, proved by the right model."""

    def completions(self, arena: Arena, counter: int) -> list[Completion]:
        return arena.draw(arena.other(counter))


@dataclass(frozen=True)
class OtherProofs(Attack):
    """This task's tokens with another file's proofs, as many as are asked for."""

    def rows(self, arena: Arena, counter: int) -> list[Rollout]:
        honest = Attack("", "").rows(arena, counter)
        others = b"".join(row.proofs for row in Attack("", "").rows(arena, arena.other(counter)))
        pool = np.frombuffer(others, dtype=np.uint8).reshape(-1, 2 + 2 * arena.rules.toploc.topk)
        rows, start = [], 0
        for row in honest:
            count = num_chunks(row.num_units, arena.rules.toploc.chunk_rows)
            rows.append(replace(row, proofs=np.roll(pool, -start, axis=0)[:count].tobytes()))
            start += count
        return rows
