"""What the judging model says of a rollout's tokens, kept apart from what the worker claims of them.

In: rows of a task. Out: a `Reading` a row: states, and the product's own `Measurements`. Many lies share their tokens
with honest work, so tokens are read once and only proofs are compared anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from protocol.checks import prefill
from protocol.checks.measurements import Measurements
from protocol.rollouts import Rollout
from protocol.sampling_rows import RowStatistics, measure_rows
from protocol.toploc.strict import verify_rollouts
from tests.attacks.cache import Cache
from tests.unit.verifier.verifier_world import World

MAX_TOKENS = 2048
"""Tokens of one packed forward pass."""
BLOCK_ROWS = 128
"""Rows of logits held at a time."""
SHAPE = [field.name for kept in (Measurements, RowStatistics) for field in fields(kept)]
"""Kept readings are of this form."""


@dataclass(frozen=True, eq=False)
class Reading:
    """`states` bf16 [T, H] that the T tokens were sampled from; `found` has no proofs in it."""

    states: Tensor
    found: Measurements

    def against(self, world: World, number: int, proofs: bytes) -> Measurements:
        """The measurements of rollout `number`, with these tokens and these proofs, which parse."""
        shape = world.rules.toploc
        result = verify_rollouts([self.states], [proofs], chunk_rows=shape.chunk_rows, topk=shape.topk, ties=shape.ties)
        return renumbered(replace(self.found, chunks=result.chunks), number)


class Readings:
    """Readings by task, place and tokens."""

    def __init__(self, identity: str, cache: Cache) -> None:
        self._identity = identity
        self._cache = cache
        self._known: dict[str, Reading] = {}

    def of(self, world: World, counter: int, rows: Sequence[Rollout]) -> list[Reading]:
        """Readings of all rows of a task, in order; the model runs for those that it hasn't seen."""
        keys = [_key(counter, index, row) for index, row in enumerate(rows)]
        unread = [index for index, key in enumerate(keys) if key not in self._known]
        if unread:
            rules = (world.rules.sampling, world.rules.thresholds.margin_reach)
            text = f"{SHAPE} {self._identity} {world.model.model.norm.weight.dtype} {rules} "
            made = self._cache.get(text + "".join(keys[i] for i in unread), lambda: _read(world, counter, rows, unread))
            self._known |= {keys[index]: reading for index, reading in zip(unread, made, strict=True)}
        return [self._known[key] for key in keys]


def renumbered(found: Measurements, number: int) -> Measurements:
    """The measurements of one rollout as those of number `number` of a file."""
    chunks = tuple(replace(chunk, rollout=number) for chunk in found.chunks)
    return replace(found, rollouts=(number,), chunks=chunks)


@torch.inference_mode()
def _read(world: World, counter: int, rows: Sequence[Rollout], indices: Sequence[int]) -> list[Reading]:
    readings = []
    for part in prefill.slices(rows, indices, MAX_TOKENS):
        hidden = prefill.sampled_states(world.model, part.rollouts)
        statistics = _statistics(world, counter, part, hidden)
        found = Measurements(part.numbers, tuple(part.lengths), statistics, (), np.empty(0))
        pieces = torch.split(hidden.bfloat16(), part.lengths)
        readings += [Reading(states.clone(), found.only(place)) for place, states in enumerate(pieces)]
    return readings


def _statistics(world: World, counter: int, part: prefill.Slice, hidden: Tensor) -> RowStatistics:
    """What `prefill.measure` makes of the logits, a block at a time."""
    claimed, keys = part.claimed(), part.keys(world.seed(counter))
    how = {"clip": world.rules.thresholds.margin_reach, "eos_ids": world.environment.tokenizer.eos_ids}
    blocks = [slice(start, start + BLOCK_ROWS) for start in range(0, len(hidden), BLOCK_ROWS)]
    logits = (world.model.logits(hidden[block]).float().numpy() for block in blocks)
    return RowStatistics.joined(
        [measure_rows(values, claimed[b], keys[b], world.rules.sampling, **how) for b, values in zip(blocks, logits)]  # noqa: B905
    )


def _key(counter: int, index: int, row: Rollout) -> str:
    digest = hashlib.sha256(f"{counter} {index} ".encode() + row.input_tokens.tobytes() + b"|")
    digest.update(row.output_tokens.tobytes())
    return digest.hexdigest()
