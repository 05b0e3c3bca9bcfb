"""A step taken again from stored files: version n and the batch give version n + 1, to the bit on the same arithmetic.

In: the checkpoints of both versions, and the batch as one of them keeps it or as somebody else does. Out: `StepReplay`:
whether every tensor is the stored one, and the first that isn't. What is read is held against the hashes that the
published record names, so that a trainer can't hand over another state or batch than it trained with.
Run: proofpool audit replay-step N --checkpoints data/trainer/checkpoints
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from protocol.batches import groups_root
from protocol.canonical import hex0x
from protocol.errors import UsageError, VerificationFailed
from protocol.shardcast.origin import published_manifest
from protocol.weights_file import WeightsFile
from trainer.batch_file import BatchFile, BatchSource
from trainer.checkpoint import PUBLISHED_RECORD_FILE, Checkpoint, CheckpointStore
from trainer.learner import Learner
from trainer.policy import Policy, whole
from trainer.ranks import Ranks, ScaleConfig, start_ranks
from trainer.step_record import Arithmetic, StateHash, StepRecord, state_hash, weights_hash


class Difference(BaseModel):
    """A tensor that didn't come out as it is stored. `largest` is None where a value isn't finite."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    tensor: str
    num_values: int
    num_different: int
    largest: float | None


class StepReplay(BaseModel):
    """What `proofpool audit replay-step --json` prints."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    policy_version: int
    manifest_hash: str | None
    """Of the published files beside the checkpoint, for the auditor to find on chain; None where they make none."""
    batch: BatchSource
    holds: bool
    tolerance: float
    num_tensors: int
    """Compared: weights, both means of the optimizer, published weights."""
    first_difference: Difference | None
    """By more than the tolerance."""
    recorded: StateHash
    found: StateHash
    """Of the state that came out; the recorded one where it is equal to the bit."""
    other_arithmetic: list[str]
    """What differs between the machine of the step and this one: last bits may."""


@dataclass(frozen=True)
class Replayer:
    """Example: `Replayer(CheckpointStore(folder), ranks).replay(3)`. `ranks` is one process."""

    store: CheckpointStore
    ranks: Ranks
    scale: ScaleConfig = ScaleConfig()
    base: Path | None = None
    """Folder of the model that the run began with: the KL term holds to it, and adapters are added to it."""
    tolerance: float = 0.0
    """The largest difference of a value that still counts as equal."""

    def replay(self, policy_version: int, data: bytes | None = None) -> StepReplay:
        """Take the step again that made `policy_version`; on `data`, if given, in place of the stored rollout file.

        Raises VerificationFailed where a stored file isn't what the record says.
        """
        made, before, source = self._named(policy_version)
        for checkpoint in (before, made):
            _check("the record", checkpoint.record, _published_record(checkpoint))
        learner = self._learner(before, made.record)
        self.store.restore(before, learner)
        _check("the state of the version before", state_hash(learner), made.record.before)
        file = self._batch(made, source, data)
        batch = file.read(learner.model.config, learner.recipe.advantage_scale)
        learner.learn(batch, before.policy_version)
        stored = self._learner(made, made.record)
        self.store.restore(made, stored)
        _check("the state of the version", state_hash(stored), made.record.state)
        published = published_manifest(made.model_folder, file.offer.pool_id, policy_version)
        num_tensors, first = 0, None
        for name, found, kept in chain(_states(learner, stored), _published(learner, made)):
            num_tensors += 1
            first = first or _difference(name, found, kept, self.tolerance)
        return StepReplay(
            policy_version=policy_version,
            manifest_hash=None if published is None else published.manifest_hash,
            batch=source,
            holds=first is None,
            tolerance=self.tolerance,
            num_tensors=num_tensors,
            first_difference=first,
            recorded=made.record.state,
            found=state_hash(learner),
            other_arithmetic=_other(made.record.arithmetic, Arithmetic.here(self.ranks, self.scale.compute_dtype)),
        )

    def _named(self, policy_version: int) -> tuple[Checkpoint, Checkpoint, BatchSource]:
        made = self.store.of(policy_version)
        if made.record.batch is None:
            raise UsageError(
                f"no step made policy version {policy_version}", "it is the base model", "name a later version"
            )
        return made, self.store.of(policy_version - 1), made.record.batch

    def _learner(self, checkpoint: Checkpoint, record: StepRecord) -> Learner:
        """With the model's shape of a checkpoint, and the step's recipe."""
        lora = record.recipe.lora
        folder = checkpoint.model_folder
        if lora is not None:
            folder = self._base_folder("this step's recipe trains adapters", "a checkpoint has these alone")
        policy = Policy.load(folder, self.ranks, self.scale, lora)
        if lora is not None:
            _check("the base model", weights_hash(policy.model), record.base)
        reference = None
        if record.reference not in (None, record.base):  # adapters hold to what they are added to
            base = self._base_folder("this step's recipe holds to a reference", "its KL coefficient is above 0")
            reference = Policy.load(base, self.ranks, self.scale).requires_grad_(False)
            _check("the reference", weights_hash(reference.model), record.reference)
        return Learner(policy, record.recipe, reference, self.ranks)

    def _base_folder(self, what: str, why: str) -> Path:
        if self.base is None:
            raise UsageError(what, why, "give --base-model: the folder of the model that the trainer started from")
        return self.base

    def _batch(self, made: Checkpoint, source: BatchSource, data: bytes | None) -> BatchFile:
        file = BatchFile.load(made.batch_folder)
        if data is not None:
            file = replace(file, data=data)
        _check("the rules", file.rules.rules_hash, source.rules_hash)
        named = groups_root([(group.submission_id, group.group) for group in file.offer.groups])
        _check("the list of the batch's groups", named, source.groups_root)
        _check("the root of the batch's groups", file.offer.groups_root, source.groups_root)
        _check("the rollout file", hex0x(hashlib.sha256(file.data).digest()), source.file_sha256)
        return file


def _published_record(checkpoint: Checkpoint) -> StepRecord:
    path = checkpoint.model_folder / PUBLISHED_RECORD_FILE
    try:
        return StepRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        why = f"{path}: {str(error).splitlines()[0]}"
        raise VerificationFailed("the published record of a version can't be read", why) from error


def _check(what: str, found: object, recorded: object) -> None:
    if found != recorded:
        raise VerificationFailed(
            f"{what} isn't what the step was recorded to be made of",
            f"{found}, recorded is {recorded}",
            "take both checkpoints from a copy that is whole; if there is none, the trainer has to answer for it",
        )


def _states(learner: Learner, stored: Learner) -> Iterator[tuple[str, Tensor, Tensor]]:
    kept = stored.state()
    for name, tensor in learner.state().items():
        yield name, tensor, kept[name]


def _published(learner: Learner, made: Checkpoint) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Of what workers got: the master weights, rounded."""
    with WeightsFile(made.model_folder, learner.model.config) as file:
        for name, tensor in learner.policy.published():
            yield f"published.{name}", tensor.to(torch.bfloat16), file.rows(name, 0, len(tensor))


def _difference(name: str, found: Tensor, kept: Tensor, tolerance: float) -> Difference | None:
    """None where all values are equal to the bit, or within the tolerance."""
    ours, theirs = (whole(tensor).cpu().contiguous() for tensor in (found, kept))
    bits = torch.int16 if ours.element_size() == 2 else torch.int32
    different = ours.view(bits) != theirs.view(bits)
    if not different.any():
        return None
    largest = float((ours.double() - theirs.double()).abs().max())
    if tolerance and largest <= tolerance:
        return None
    return Difference(
        tensor=name,
        num_values=different.numel(),
        num_different=int(different.sum()),
        largest=largest if math.isfinite(largest) else None,
    )


def _other(recorded: Arithmetic, here: Arithmetic) -> list[str]:
    then, now = recorded.model_dump(), here.model_dump()
    return [f"{name}: {then[name]} then, {now[name]} now" for name in then if then[name] != now[name]]


def replay_from(
    checkpoints: Path, policy_version: int, data: bytes | None, base: Path | None, tolerance: float
) -> StepReplay:
    """A step replayed by this process alone, with as many threads as it was taken with.

    Raises UsageError for a folder that isn't there, and what `Replayer.replay` raises.
    """
    if not checkpoints.is_dir():
        raise UsageError("there is no such folder", str(checkpoints), "name the trainer's data_dir/checkpoints")
    store = CheckpointStore(checkpoints)
    arithmetic = store.of(policy_version).record.arithmetic
    scale = ScaleConfig.model_validate({"compute_dtype": arithmetic.compute_dtype})
    torch.set_num_threads(arithmetic.num_threads)
    ranks = start_ranks(scale, environment={})
    try:
        return Replayer(store, ranks, scale, base, tolerance).replay(policy_version, data)
    finally:
        ranks.close()
