"""All ranks as one: what the first one does with its learner and its checkpoints, each of the others does too.

In: calls of the loop, on the first rank. Out: the same calls on every rank, in the same order, since each of them
exchanges tensors with all the others. Alone it is the learner and the checkpoints, and nothing is sent.

    first rank     loop ──learn, save, restore──▶ Crew ──order──▶ Crew.follow     other ranks
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from protocol.errors import ProofpoolError
from protocol.heap import return_holes
from trainer.batch_file import BatchFile
from trainer.checkpoint import Checkpoint, CheckpointStore
from trainer.figures import StepFigures
from trainer.learner import Learner
from trainer.ranks import Part, losing_ranks
from trainer.samples import TrainingBatch


@dataclass(frozen=True, eq=False)
class Learn:
    batch: TrainingBatch
    policy_version: int


@dataclass(frozen=True)
class Save:
    policy_version: int
    before: Checkpoint | None


@dataclass(frozen=True)
class Restore:
    checkpoint: Checkpoint


class Crew:
    """The learner and the checkpoints of all ranks. `base` is the folder of policy version 0.

    All but `read` and `follow` are the first rank's to call; each raises RankLost where another rank is gone.
    """

    def __init__(self, learner: Learner, checkpoints: CheckpointStore, base: Path) -> None:
        self.learner = learner
        self.checkpoints = checkpoints
        self.base = base

    def read(self, file: BatchFile) -> TrainingBatch:
        """The samples of a batch, for the model and the recipe at hand. Raises VerificationFailed, UnfitRow."""
        return file.read(self.learner.model.config, self.learner.recipe.advantage_scale)

    def learn(self, batch: TrainingBatch, policy_version: int) -> StepFigures:
        """Take the optimizer steps of one batch, starting from `policy_version`."""
        with losing_ranks():
            self.learner.ranks.tell(Learn(batch, policy_version))
            return self._learn(batch, policy_version)

    def save(self, policy_version: int, batch: BatchFile | None, before: Checkpoint | None) -> Checkpoint:
        """The state after a step of `batch` from `before`; of the base model without them."""
        with losing_ranks():
            self.learner.ranks.tell(Save(policy_version, before))
            return self.checkpoints.save(self.learner, policy_version, batch, self.base, before)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from where `checkpoint` was saved."""
        with losing_ranks():
            self.learner.ranks.tell(Restore(checkpoint))
            self.checkpoints.resume(checkpoint, self.learner)

    def follow(self) -> None:
        """Every rank but the first: do as it does, until it parts. Raises RankLost where it is gone."""
        with losing_ranks():
            while not isinstance(order := self.learner.ranks.hear(), Part):
                self._carry_out(order)
        self.learner.ranks.close()

    def _learn(self, batch: TrainingBatch, policy_version: int) -> StepFigures:
        figures = self.learner.learn(batch, policy_version)
        return_holes()  # until the next batch is there, nobody needs what activations were in
        return figures

    def _carry_out(self, order: object) -> None:
        match order:
            case Learn(batch, policy_version):
                self._learn(batch, policy_version)
            case Save(policy_version, before):
                self.checkpoints.save(self.learner, policy_version, None, self.base, before)
            case Restore(checkpoint):
                self.checkpoints.resume(checkpoint, self.learner)
            case _:
                raise ProofpoolError("the first rank gave an order of another version of proofpool", repr(order)[:100])
