"""The trainer's loop: resume -> broadcast -> wait for a batch -> fetch -> learn -> save -> report, and again.

consumes   accepted batches (`POST /v1/batches`)
produces   policy versions (origin folder, chain, coordinator), metrics.jsonl
waits for  enough accepted groups; never for a particular worker
unblocks   workers, which follow the newest version

Killed anywhere, it resumes from the newest checkpoint: that version is broadcast and its batch
acknowledged again, both of which change nothing the second time.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from protocol.api import BatchOffer, BatchRefusal
from protocol.clock import Clock
from protocol.telemetry import get_logger
from protocol.waiting import Waiting
from trainer.batches import Batches
from trainer.broadcast import Broadcaster
from trainer.checkpoint import Checkpoint, CheckpointStore
from trainer.figures import StepFigures
from trainer.learner import Learner
from trainer.samples import TrainingBatch, UnfitRow


class Trainer:
    """One pool's trainer, between the coordinator and the origin."""

    def __init__(
        self,
        learner: Learner,
        checkpoints: CheckpointStore,
        broadcaster: Broadcaster,
        batches: Batches,
        base_model: Path,
        metrics_file: Path,
        clock: Clock,
        waiting: Waiting,
    ) -> None:
        self.learner = learner
        self.checkpoints = checkpoints
        self.broadcaster = broadcaster
        self.batches = batches
        self.base_model = base_model
        self.metrics_file = metrics_file
        self.clock = clock
        self.waiting = waiting

    def run(self, num_steps: int | None = None) -> None:
        """Train until stopped or policy version `num_steps` is out."""
        checkpoint = self.resume()
        while self.broadcast(checkpoint) and checkpoint.policy_version != num_steps:
            waiting_since = self.clock.now()
            if (taken := self.take(checkpoint.policy_version + 1)) is None:
                return
            offer, batch = taken
            waited = self.clock.now() - waiting_since
            figures = self.learner.learn(batch, checkpoint.policy_version)
            checkpoint = self.save(offer)
            self.report(checkpoint, figures, waited)

    def resume(self) -> Checkpoint:
        """The newest checkpoint, with the learner where it was; the base model the first time."""
        checkpoint = self.checkpoints.newest()
        if checkpoint is None:
            return self.checkpoints.save(self.learner, 0, None, self.base_model)
        self.checkpoints.restore(checkpoint, self.learner)
        get_logger().info("trainer.resumed", policy_version=checkpoint.policy_version)
        return checkpoint

    def broadcast(self, checkpoint: Checkpoint) -> bool:
        """Publish the version, then let go of the batch that made it; False if stopped before."""

        def publish() -> bool:
            self.broadcaster.broadcast(checkpoint)
            if checkpoint.batch_number is not None:
                self.batches.acknowledge(checkpoint.batch_number)
            return True

        return bool(self.waiting.until("the coordinator and the chain", publish))

    def take(self, step: int) -> tuple[BatchOffer, TrainingBatch] | None:
        """A batch of this step that can be trained on: the pool is told of any that can't. None if stopped before."""
        while (offer := self.wait_for_batch(step)) is not None:
            try:
                batch = self.fetch(offer)
            except UnfitRow as unfit:
                self.refuse(offer, unfit)
            else:
                return None if batch is None else (offer, batch)
        return None

    def wait_for_batch(self, step: int) -> BatchOffer | None:
        """The batch of this step, as soon as there are enough accepted groups; None if stopped before.

        Meanwhile the version before is kept on chain: without it nobody leases, and no later one can be published.
        """

        def lease() -> BatchOffer | None:
            self.broadcaster.keep_on_chain(step - 1)
            return self.batches.lease(step)

        return self.waiting.until(f"the batch of step {step}", lease)

    def fetch(self, offer: BatchOffer) -> TrainingBatch | None:
        """What the offer promises; None if stopped before."""
        return self.waiting.until(f"the file of batch {offer.number}", lambda: self.batches.fetch(offer))

    def refuse(self, offer: BatchOffer, unfit: UnfitRow) -> None:
        """Tell the pool which submission can't be trained on. Stopped before, it is told after the restart."""
        get_logger().error("batch.unfit", number=offer.number, submission_id=unfit.submission_id, why=unfit.fault)
        refusal = BatchRefusal(submission_id=unfit.submission_id, why=unfit.fault)

        def tell() -> bool:
            self.batches.refuse(offer.number, refusal)
            return True

        self.waiting.until("the coordinator", tell)

    def save(self, offer: BatchOffer) -> Checkpoint:
        return self.checkpoints.save(self.learner, offer.step, offer.number, self.base_model)

    def report(self, checkpoint: Checkpoint, figures: StepFigures, waited_seconds: float) -> None:
        """One line in metrics.jsonl and one in the log."""
        line = {"step": checkpoint.policy_version, "time": self.clock.now(), "waited_seconds": waited_seconds}
        line |= asdict(figures)
        with self.metrics_file.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        get_logger().info("step.done", **line)
