"""Checkpoints: the trainer's own durable state, one folder a policy version.

In: a learner after a step. Out: `ROOT/N/{state.pt, step.json, model/}`, there whole or not at all;
`model/` is the Hugging Face folder that is published (bf16). Resuming from it is exact to the bit.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from protocol.errors import ProofpoolError
from protocol.files import sync_folder, write_atomically
from protocol.weights import save_checkpoint
from trainer.learner import Learner

COMPANIONS = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


@dataclass(frozen=True)
class Checkpoint:
    """A policy version on disk. `batch_number` is the batch that made it; None for the base model."""

    policy_version: int
    folder: Path
    batch_number: int | None

    @property
    def model_folder(self) -> Path:
        return self.folder / "model"


class CheckpointStore:
    """All checkpoints of a run, newest last."""

    def __init__(self, root: Path, keep: int = 3) -> None:
        self.root = root
        self.keep = keep

    def newest(self) -> Checkpoint | None:
        versions = self._versions()
        if not versions:
            return None
        folder = self.root / str(versions[-1])
        try:
            record = json.loads((folder / "step.json").read_text())
            return Checkpoint(versions[-1], folder, record["batch_number"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(folder, error) from error

    def save(self, learner: Learner, policy_version: int, batch_number: int | None, base: Path) -> Checkpoint:
        """Write the state after a step; `base` lends its tokenizer files. Replaces nothing that is whole."""
        folder, staging = self.root / str(policy_version), self.root / f".{policy_version}.staging"
        shutil.rmtree(staging, ignore_errors=True)
        companions = [base / name for name in COMPANIONS if (base / name).exists()]
        save_checkpoint(staging / "model", learner.model.config, learner.model.weights(torch.bfloat16), companions)
        buffer = io.BytesIO()
        torch.save(learner.state(), buffer)
        write_atomically(staging / "state.pt", buffer.getvalue())
        record = {"schema_version": 1, "policy_version": policy_version, "batch_number": batch_number}
        write_atomically(staging / "step.json", json.dumps(record).encode())
        staging.rename(folder)
        sync_folder(self.root)
        self._drop_old()
        return Checkpoint(policy_version, folder, batch_number)

    def restore(self, checkpoint: Checkpoint, learner: Learner) -> None:
        """Put the learner where it was when `checkpoint` was saved. Raises ProofpoolError where the disk damaged it."""
        try:
            state = torch.load(checkpoint.folder / "state.pt", weights_only=True)
        except Exception as error:  # torch has another type for each kind of damage
            raise _damaged(checkpoint.folder, error) from error
        learner.restore(state)

    def _versions(self) -> Sequence[int]:
        self.root.mkdir(parents=True, exist_ok=True)
        return sorted(int(path.name) for path in self.root.iterdir() if path.name.isdigit())

    def _drop_old(self) -> None:
        """Optimizer states are large: the published weights live on in the origin."""
        for version in self._versions()[: -self.keep]:
            shutil.rmtree(self.root / str(version))


def _damaged(folder: Path, error: Exception) -> ProofpoolError:
    return ProofpoolError(
        "a checkpoint can't be read",
        f"{folder}: {type(error).__name__}",
        "move its folder away: the step is taken again from the checkpoint before, with the same batch",
    )
