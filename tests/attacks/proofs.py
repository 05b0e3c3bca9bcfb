"""Proofs of nothing, or of something else than the states; tokens are honest.

What it saves in earnest: an engine that gives hidden states, or the right model. Caught by: strict parsing, or TOPLOC's
comparison with the verifier's own states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from protocol.engines.base import Completion
from protocol.toploc.build import build_rollouts
from protocol.toploc.encoding import num_chunks
from testnet.cheats.forged_proof import full_constant, random_proof, short_constant
from tests.attacks.arena import Arena
from tests.attacks.attack import Attack

Forge = Callable[[int, int], bytes]
"""(values a chunk, number of the chunk) to a proof."""


@dataclass(frozen=True)
class Forged(Attack):
    """Every chunk's proof made without a look at the states."""

    forge: Forge = short_constant

    def proofs(self, arena: Arena, counter: int, completions: Sequence[Completion]) -> list[bytes]:
        topk, rows = arena.rules.toploc.topk, arena.rules.toploc.chunk_rows
        counts = [num_chunks(len(c.output_tokens), rows) for c in completions]
        return [
            b"".join(self.forge(topk, 1000 * c.sample + number) for number in range(count))
            for c, count in zip(completions, counts, strict=True)
        ]


def null_proof(topk: int, number: int) -> bytes:
    """What the published library writes where it fails."""
    return b""


def zero_proof(topk: int, number: int) -> bytes:
    """Nothing but zeros, at full length: the modulus is 0."""
    return bytes(2 + 2 * topk)


FORGES: dict[str, Forge] = {
    "null": null_proof,
    "zeros": zero_proof,
    "constant, 4 bytes": short_constant,
    "constant, full length": full_constant,
    "random": random_proof,
}


@dataclass(frozen=True)
class Resized(Attack):
    """Honest proofs, the last one cut short by `cut` bytes, or with `extra` chunks more."""

    cut: int = 0
    extra: int = 0

    def proofs(self, arena: Arena, counter: int, completions: Sequence[Completion]) -> list[bytes]:
        size = 2 + 2 * arena.rules.toploc.topk
        honest = super().proofs(arena, counter, completions)
        return [column[: len(column) - self.cut] + column[-size:] * self.extra for column in honest]


Bend = Callable[[list[torch.Tensor]], list[torch.Tensor]]
"""Hidden states bf16 [T, H] of each completion to what is proved in their place."""


@dataclass(frozen=True)
class Bent(Attack):
    """Proofs of states that were changed."""

    bend: Bend = list

    def proofs(self, arena: Arena, counter: int, completions: Sequence[Completion]) -> list[bytes]:
        return build_rollouts(self.bend([c.hidden_rows for c in completions]), ties=arena.rules.toploc.ties)


def negated(states: list[torch.Tensor]) -> list[torch.Tensor]:
    return [-rows for rows in states]


def shifted(states: list[torch.Tensor]) -> list[torch.Tensor]:
    """Each position's state in the place of the next: an engine that counts from one."""
    return [rows.roll(1, 0) for rows in states]


def swapped(states: list[torch.Tensor]) -> list[torch.Tensor]:
    """Each completion's states from another of the same file, as far as they go."""
    turned = states[1:] + states[:1]
    return [_as_long(other, len(rows)) for rows, other in zip(states, turned, strict=True)]


def _as_long(rows: torch.Tensor, length: int) -> torch.Tensor:
    return rows.repeat((length + len(rows) - 1) // len(rows), 1)[:length]


@dataclass(frozen=True)
class Offline(Attack):
    """A polynomial built before the task was known: through the means of each dimension over other work.

    Models have outlier dimensions that are large at every token; their places and usual values are public.
    """

    def proofs(self, arena: Arena, counter: int, completions: Sequence[Completion]) -> list[bytes]:
        known = torch.cat([c.hidden_rows.float() for c in arena.draw(arena.other(counter))])
        usual = known.mean(dim=0).bfloat16()
        guessed = [usual.expand(len(c.output_tokens), -1).contiguous() for c in completions]
        return build_rollouts(guessed, ties=arena.rules.toploc.ties)
