"""False claims beside honest work: rewards, log-probs, version, lease, numbers that are none, files that unfold.

What it gains in earnest: influence on the training, pay for work that wasn't asked, a verifier that breaks. Caught by:
the environment run again, the model's own log-probs, the envelope, and a strict reader.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from protocol.canonical import canonical_json
from protocol.rollouts import HEADER_KEY, SCHEMA, Rollout
from protocol.wire import Signed, Submission
from tests.attacks.arena import Arena
from tests.attacks.attack import Attack
from tests.unit.verifier.verifier_world import DOMAIN, NODE
from verifier.case import Dossier

Claim = Callable[[Rollout], Rollout]


@dataclass(frozen=True)
class Claimed(Attack):
    """Honest rows, each with one claim changed."""

    claim: Claim = lambda row: row

    def rows(self, arena: Arena, counter: int) -> list[Rollout]:
        return [self.claim(row) for row in super().rows(arena, counter)]


def all_pass(row: Rollout) -> Rollout:
    return replace(row, task_reward=1.0)


def surer(row: Rollout) -> Rollout:
    """Log-probs of a model that is surer of itself."""
    return replace(row, output_logprobs=row.output_logprobs * np.float32(0.9))


def flat(row: Rollout) -> Rollout:
    """No log-probs at all: every token certain."""
    return replace(row, output_logprobs=np.zeros_like(row.output_logprobs))


def later(row: Rollout) -> Rollout:
    return replace(row, step=row.step + 1)


def nan_logprob(row: Rollout) -> Rollout:
    return replace(row, output_logprobs=np.full_like(row.output_logprobs, np.nan))


def infinite_logprob(row: Rollout) -> Rollout:
    return replace(row, output_logprobs=np.full_like(row.output_logprobs, -np.inf))


def nan_reward(row: Rollout) -> Rollout:
    return replace(row, task_reward=float("nan"))


def infinite_reward(row: Rollout) -> Rollout:
    return replace(row, task_reward=float("inf"))


@dataclass(frozen=True)
class OtherVersion(Attack):
    """The signed submission names the next policy version; its lease is for this one."""

    def dossier(self, arena: Arena, counter: int) -> Dossier:
        return resigned(super().dossier(arena, counter), policy_version=1)


@dataclass(frozen=True)
class Unleased(Attack):
    """A counter that nobody leased, under the signature of another one's lease: a second look at the noise."""

    def dossier(self, arena: Arena, counter: int) -> Dossier:
        honest = super().dossier(arena, counter)
        return replace(honest, task=arena.world.dossier([], counter + 1000).task)


@dataclass(frozen=True)
class Bomb(Attack):
    """A few kilobytes that would unfold to far more rows or tokens than a task has."""

    num_rows: int = 1
    num_tokens: int = 1
    dictionary: bool = False

    def dossier(self, arena: Arena, counter: int) -> Dossier:
        honest = super().dossier(arena, counter)
        file = arena.cache.get(f"{self} {arena.world.header(counter)}", lambda: self._file(arena, counter))
        return replace(honest, file=file)

    def _file(self, arena: Arena, counter: int) -> bytes:
        row = Attack("", "").rows(arena, counter)[0]
        tokens = pa.array(np.zeros(self.num_tokens * self.num_rows, np.int32))
        ends = pa.array(np.arange(self.num_rows + 1, dtype=np.int32) * self.num_tokens)
        lists = pa.ListArray.from_arrays(ends, tokens)
        floats = pa.ListArray.from_arrays(ends, tokens.cast(pa.float32()))
        single = {"proofs": row.proofs[:1], "problem_id": row.problem_id, "task_type": row.task_type}
        single |= {"task_rewards": 0.0, "step": 0, "target_lengths": -1, "finish_reason": "length"}
        wide = {"input_tokens": lists, "output_tokens": lists, "output_logprobs": floats}
        columns = [
            wide[field.name]
            if field.name in wide
            else pa.repeat(pa.scalar(single[field.name], field.type), self.num_rows)
            for field in SCHEMA
        ]
        buffer = io.BytesIO()
        with pq.ParquetWriter(buffer, SCHEMA, compression="zstd", use_dictionary=self.dictionary) as writer:
            writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA))
            writer.add_key_value_metadata(
                {HEADER_KEY: canonical_json(arena.world.header(counter).model_dump(mode="json"))}
            )
        return buffer.getvalue()


def resigned(dossier: Dossier, **changes: object) -> Dossier:
    """The node's own signature under other claims."""
    claim: Submission = dossier.claim.model_copy(update=changes)
    return replace(dossier, submission=Signed[Submission].by(NODE, claim, DOMAIN))
