"""Checkpoints: the trainer's own durable state, one folder a policy version.

In: a learner after a step. Out, there whole or not at all, written by all ranks together:

    ROOT/N/state/       float32 weights (or adapters) and optimizer, each rank's rows in a file of its own (torch's DCP)
           model/       the published Hugging Face folder (bf16) and its `training.json`
           batch/       offer, rules and rollout file of the step that made it; groups of the steps before
           step.json    `StepRecord`

A checkpoint can be resumed on any number of ranks; one process goes on exact to the bit. No rank ever holds more than
one whole tensor besides its own rows. With several machines ROOT lies on a disk that they share.
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import torch
from blake3 import blake3
from pydantic import Field, ValidationError
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from protocol.api import BatchOffer
from protocol.canonical import hex0x
from protocol.errors import ConfigError, ProofpoolError
from protocol.files import sync_folder, write_atomically
from protocol.shardcast.folder import MANIFEST_FILE
from protocol.shardcast.manifest import Manifest
from protocol.weights import ModelConfig
from protocol.weights_file import write_weights
from trainer.batch_file import OFFER_FILE, BatchFile
from trainer.learner import Learner
from trainer.policy import whole
from trainer.ranks import Ranks, losing_ranks
from trainer.step_record import Arithmetic, StateHash, StepRecord, hashing, names_of, state_hash, weights_hash
from trainer.trained_groups import TrainedGroups

COMPANIONS = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
RECORD_FILE = "step.json"
INDEX_FILE = ".metadata"
"""Of a checkpoint's state, by torch: which tensor is in which file."""
VERSION = re.compile("0|[1-9][0-9]*")
"""Names of checkpoints' folders; others, such as `7.aside`, are somebody's own."""
PUBLISHED_RECORD_FILE = "training.json"

TAKE_AGAIN = "move its folder away: the step is taken again from the checkpoint before, with the same batch"

Start = Literal["newest", "anew"] | Annotated[int, Field(ge=0)]
"""Where a run starts: at the newest checkpoint or, without one, at the base model; only there; at a policy version."""


@dataclass(frozen=True)
class Checkpoint:
    """A policy version on disk."""

    folder: Path
    record: StepRecord

    @property
    def policy_version(self) -> int:
        return self.record.policy_version

    @property
    def batch_number(self) -> int | None:
        """The batch that made it; None for the base model."""
        return None if self.record.batch is None else self.record.batch.number

    @property
    def model_folder(self) -> Path:
        return self.folder / "model"

    @property
    def batch_folder(self) -> Path:
        """Not there for the base model."""
        return self.folder / "batch"

    @property
    def pool_id(self) -> int | None:
        """The pool whose batch made it or that it was published in; None where neither file says so."""
        named: tuple[tuple[type[BatchOffer | Manifest], Path], ...] = (
            (BatchOffer, self.batch_folder / OFFER_FILE),
            (Manifest, self.model_folder / MANIFEST_FILE),
        )
        for kind, file in named:
            # What is damaged is told by whoever needs more of it.
            with suppress(OSError, ValidationError):
                return kind.model_validate_json(file.read_bytes()).pool_id
        return None


class CheckpointStore:
    """All checkpoints of a run; the newest `keep` stay. Every rank has one, over the same folder."""

    def __init__(self, root: Path, keep: int = 3) -> None:
        self.root = root
        self.keep = keep
        self._reference: str | None = None
        self._base: str | None = None

    def newest(self) -> Checkpoint | None:
        versions = self.versions()
        return self.of(versions[-1]) if versions else None

    def start(self, at: Start) -> Checkpoint | None:
        """Where a run starts; None for the base model. Raises ConfigError where that can't be.

        Checkpoints past a named version are renamed: their steps are taken again.
        """
        start = self.peek(at)
        if start is None:
            return None
        checkpoint = self.of(start)
        for version in (version for version in self.versions() if version > start):
            aside = self.root / f"{version}.aside"
            shutil.rmtree(aside, ignore_errors=True)
            (self.root / str(version)).rename(aside)
        return checkpoint

    def peek(self, at: Start) -> int | None:
        """The version where a run starts; None for the base model. Raises as `of` does, changes nothing."""
        versions = self.versions()
        if at == "anew" and versions:
            raise ConfigError(
                "this run can't start anew",
                f"{self.root} has policy versions {versions[0]} to {versions[-1]}",
                "give it a data_dir of its own, or resume the newest",
            )
        if isinstance(at, str):
            return self.of(versions[-1]).policy_version if versions else None
        return self.of(at).policy_version

    def of(self, policy_version: int) -> Checkpoint:
        """Raises ProofpoolError where it isn't there or can't be read."""
        folder = self.root / str(policy_version)
        if not folder.is_dir():
            raise ConfigError(
                f"there is no checkpoint of policy version {policy_version}",
                f"{self.root} has {', '.join(map(str, self.versions())) or 'none'}",
                "name one of these; `keep_checkpoints` says how many stay",
            )
        try:
            record = StepRecord.model_validate_json((folder / RECORD_FILE).read_bytes())
        except (OSError, ValidationError) as error:
            raise _damaged(folder, error) from error
        if record.policy_version != policy_version:
            raise ProofpoolError(
                "a checkpoint's folder has the name of another policy version",
                f"{folder / RECORD_FILE} is of version {record.policy_version}",
                f"name the folder {record.policy_version} again, or move it away if there is one of that name",
            )
        return Checkpoint(folder, record)

    def save(
        self,
        learner: Learner,
        policy_version: int,
        batch: BatchFile | None,
        base: Path,
        before: Checkpoint | None = None,
    ) -> Checkpoint:
        """Write the state after a step of `batch` from `before`; `base` lends its tokenizer files. All ranks together.

        Replaces nothing that is whole: what fails on the way leaves the checkpoints as they were.
        """
        ranks = learner.ranks
        folder, staging = self.root / str(policy_version), self.root / f".{policy_version}.staging"
        if ranks.is_first:
            shutil.rmtree(staging, ignore_errors=True)
            (staging / "model").mkdir(parents=True)
        ranks.wait()
        _check_shared(staging, ranks)
        state = learner.state()
        _write_state(state, staging / "state", learner)
        record = StepRecord(
            policy_version=policy_version,
            num_updates=learner.num_updates,
            state=_export(state, staging / "model", learner),
            before=None if before is None else before.record.state,
            batch=None if batch is None else batch.source,
            recipe=learner.recipe,
            reference=self._reference_hash(learner),
            base=self._base_hash(learner),
            arithmetic=Arithmetic.here(ranks, learner.policy.compute_dtype),
        )
        if ranks.is_first:
            _write_rest(staging, record, batch, base, before)
            staging.rename(folder)
            sync_folder(self.root)
            self._drop_old()
        ranks.wait()
        return Checkpoint(folder, record)

    def restore(self, checkpoint: Checkpoint, learner: Learner) -> None:
        """Put the learner where it was when `checkpoint` was saved. Raises ProofpoolError where the disk damaged it."""
        _check_model(checkpoint, learner)
        self._check_adapters(checkpoint, learner)
        alone = learner.ranks.control is None
        if not (index := checkpoint.folder / "state" / INDEX_FILE).is_file():  # torch would print where it looked
            raise _damaged(checkpoint.folder, FileNotFoundError(f"there is no {index.name} in {index.parent}"))
        state = learner.make_room(checkpoint.record.num_updates)
        try:
            with _exchanging():
                load(
                    state,
                    checkpoint_id=checkpoint.folder / "state",
                    process_group=learner.ranks.control,
                    no_dist=alone,
                )
        except (Exception, CheckpointException) as error:  # torch has another type for each kind of damage
            if isinstance(error, ProofpoolError):
                raise
            raise _damaged(checkpoint.folder, error) from error

    def resume(self, checkpoint: Checkpoint, learner: Learner) -> None:
        """`restore`, and hold the state against the record: all ranks together.

        Raises ProofpoolError where a value isn't the saved one: what is learnt from it couldn't be accounted for.
        """
        self.restore(checkpoint, learner)
        if state_hash(learner) != checkpoint.record.state:
            raise ProofpoolError(
                "a checkpoint holds another state than was saved",
                f"{checkpoint.folder / 'state'}: its values don't have the hashes in {RECORD_FILE}",
                TAKE_AGAIN,
            )

    def versions(self) -> Sequence[int]:
        """Of whole checkpoints, oldest first."""
        folders = self.root.iterdir() if self.root.is_dir() else ()
        return sorted(int(path.name) for path in folders if VERSION.fullmatch(path.name) and path.is_dir())

    def _reference_hash(self, learner: Learner) -> str | None:
        """It is frozen: looked at once, by all ranks."""
        if learner.reference is None:
            return self._base_hash(learner) if learner.recipe.objective.kl_coefficient else None
        if self._reference is None:
            self._reference = weights_hash(learner.reference.model)
        return self._reference

    def _base_hash(self, learner: Learner) -> str | None:
        """The same, of what adapters are added to."""
        if learner.recipe.lora is not None and self._base is None:
            self._base = weights_hash(learner.model)
        return self._base

    def _check_adapters(self, checkpoint: Checkpoint, learner: Learner) -> None:
        """Raises ConfigError where the checkpoint's state isn't of this learner's adapters, or of another model."""
        record, lora = checkpoint.record, learner.recipe.lora
        if record.recipe.lora != lora:
            raise ConfigError(
                "the checkpoint was trained with other adapters",
                f"{checkpoint.folder}: {record.recipe.lora}, recipe.lora is {lora}",
                "set recipe.lora as it was, or begin another run: its own data_dir, a published version as base_model",
            )
        if (base := self._base_hash(learner)) != record.base:
            raise ConfigError(
                "the checkpoint's adapters are another model's",
                f"{checkpoint.folder}: made for weights {record.base}, base_model has {base}",
                "set base_model to the model that the run began with",
            )

    def _drop_old(self) -> None:
        """Optimizer states are large: the published weights live on in the origin."""
        for version in self.versions()[: -self.keep]:
            shutil.rmtree(self.root / str(version))


def _check_model(checkpoint: Checkpoint, learner: Learner) -> None:
    """Raises ConfigError where the checkpoint is of a model of another shape: nothing of it is damaged."""
    saved = ModelConfig.load(checkpoint.model_folder).weight_shapes()
    here = learner.model.config.weight_shapes()
    if saved != here:
        name = next(name for name in [*saved, *here] if saved.get(name) != here.get(name))
        raise ConfigError(
            "the checkpoint is of another model than base_model",
            f"{checkpoint.folder}: {name} is {saved.get(name)}, in base_model {here.get(name)}",
            "set base_model to the model that the run began with, or give this one a data_dir of its own",
        )


def _check_shared(folder: Path, ranks: Ranks) -> None:
    """Raises ConfigError, on every rank, unless all of them see what the first one made."""
    blind = int(ranks.sum(torch.tensor(float(not folder.is_dir()))))
    if blind:
        raise ConfigError(
            "the trainer's ranks don't share a data folder",
            f"{blind} of {ranks.size} ranks don't see {folder}",
            "set data_dir to a folder on a disk that all machines mount at the same path",
        )


@contextmanager
def _exchanging() -> Iterator[None]:
    """torch warns where there is nobody to exchange with: one process without a group is as good."""
    with warnings.catch_warnings(), losing_ranks():
        warnings.filterwarnings("ignore", "torch.distributed is (disabled, )?unavailable or uninitialized")
        yield


def _write_state(state: dict[str, Tensor], folder: Path, learner: Learner) -> None:
    """Each rank its own rows. Raises OSError where a disk refuses."""
    control = learner.ranks.control
    try:
        with _exchanging():
            save(state, checkpoint_id=folder, process_group=control, no_dist=control is None)
    except CheckpointException as error:  # a BaseException, with what failed on each rank
        rank, (first, _) = next(iter(error.failures.items()))
        free = shutil.disk_usage(folder.parent).free
        why = f"rank {rank} couldn't write its part of {folder}, whose disk has {free:,} bytes left: {first}"
        raise OSError(why) from error


def _export(state: dict[str, Tensor], folder: Path, learner: Learner) -> StateHash:
    """Writes the published weights, and hashes the state: a tensor at a time comes together, on every rank.

    The first rank writes and hashes; the others' hashes are of nothing, and they don't use them.
    """
    weights_names, optimizer_names = names_of(state)
    optimizer, weights = (blake3(max_threads=blake3.AUTO) for _ in range(2))
    published = learner.policy.published()
    apart = [(optimizer_names, optimizer)]
    if learner.recipe.lora is None:  # what is published is the state's weights: they are gone over once
        tensors = hashing(((f"weights.{name}", tensor) for name, tensor in published), weights)
    else:
        tensors = (tensor for _, tensor in published)
        apart.append((weights_names, weights))
    if not learner.ranks.is_first:
        deque(chain(_gathered(state, [name for names, _ in apart for name in names]), published), maxlen=0)
        return StateHash(weights=hex0x(weights.digest()), optimizer=hex0x(optimizer.digest()))
    for names, digest in apart:
        deque(hashing(_gathered(state, names), digest), maxlen=0)
    write_weights(folder, learner.model.config, torch.bfloat16, tensors)
    return StateHash(weights=hex0x(weights.digest()), optimizer=hex0x(optimizer.digest()))


def _gathered(state: dict[str, Tensor], names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
    for name in names:
        yield name, whole(state[name])


def _write_rest(
    staging: Path, record: StepRecord, batch: BatchFile | None, base: Path, before: Checkpoint | None
) -> None:
    text = record.model_dump_json(indent=1).encode() + b"\n"
    write_atomically(staging / "model" / PUBLISHED_RECORD_FILE, text)
    for name in COMPANIONS:
        if (base / name).exists():
            write_atomically(staging / "model" / name, (base / name).read_bytes())
    if batch is not None:
        trained = TrainedGroups() if before is None else TrainedGroups.until(before.batch_folder)
        batch.write(staging / "batch")
        trained.write(staging / "batch", batch)
    write_atomically(staging / RECORD_FILE, text)


def _damaged(folder: Path, error: BaseException) -> ProofpoolError:
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]  # what failed on the first rank that tells
    first = next(iter(str(error).splitlines()), "")
    return ProofpoolError(
        "a checkpoint can't be read",
        f"{folder}: {type(error).__name__}{first and ': '}{first[:200]}",
        TAKE_AGAIN,
    )
