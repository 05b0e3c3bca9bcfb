"""The trainer's loop: resume -> acknowledge -> wait for a batch -> fetch -> learn -> save -> report, and again.

A version is published, in a thread of its own, while the step after it is taken:

    learn n ──▶ save n ──▶ acknowledge n ──▶ wait, fetch, learn n + 1 ───────▶ save n + 1
                                       └───▶ publish n: origin, chain, coordinator ─┘

consumes   accepted batches (`POST /v1/batches`)
produces   policy versions (origin folder, chain, coordinator), metrics.jsonl, evaluations of every n-th version
waits for  enough accepted groups; never for a particular worker
unblocks   workers, which follow the newest version

Killed anywhere, it resumes from the newest checkpoint: its batch is acknowledged and that version is published again,
both of which change nothing the second time. No version is saved before the one before is out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from protocol.api import BatchOffer, BatchRefusal
from protocol.errors import VerificationFailed
from protocol.telemetry import get_logger
from protocol.waiting import Waiting
from trainer.batch_file import BatchFile
from trainer.batches import Batches
from trainer.broadcast import Broadcaster
from trainer.checkpoint import Checkpoint, Start
from trainer.crew import Crew
from trainer.held_back import Evaluations
from trainer.learner import changed
from trainer.publishing import Publishing
from trainer.reporting import Reporting
from trainer.samples import TrainingBatch, UnfitRow
from trainer.stopwatch import Phase
from trainer.trained_groups import TrainedGroups


class Trainer:
    """One pool's trainer, between the coordinator and the origin."""

    def __init__(
        self,
        crew: Crew,
        broadcaster: Broadcaster,
        batches: Batches,
        reporting: Reporting,
        evaluations: Evaluations,
        waiting: Waiting,
        start: Start = "newest",
    ) -> None:
        self.crew = crew
        self.broadcaster = broadcaster
        self.batches = batches
        self.reporting = reporting
        self.evaluations = evaluations
        self.stopwatch = reporting.stopwatch
        self.waiting = waiting
        self.start = start

    def run(self, num_steps: int | None = None) -> None:
        """Train until stopped or policy version `num_steps` is out."""
        checkpoint = self.resume()
        self.evaluations.resume(self.crew.checkpoints, checkpoint)
        try:
            while self.acknowledge(checkpoint):
                with self.publishing(checkpoint) as publishing:
                    if checkpoint.policy_version == num_steps:
                        break
                    if (step := self.step(checkpoint, publishing, num_steps)) is None:
                        return
                checkpoint = step
            with self.stopwatch.phase(Phase.EVALUATION):
                self.evaluations.finish()
        finally:
            self.evaluations.stop()

    def step(self, before: Checkpoint, publishing: Publishing, num_steps: int | None = None) -> Checkpoint | None:
        """The version after `before`, saved once that one is out; None if stopped before."""
        is_last = before.policy_version + 1 == num_steps
        with self.stopwatch.phase(Phase.BATCH):
            waiting_since = self.stopwatch.clock.now()
            if (taken := self.take(before, publishing)) is None:
                return None
            unpublished_seconds = publishing.seconds_since(waiting_since)
        file, batch = taken
        with self.stopwatch.phase(Phase.LEARNING), self.evaluations.paused():
            figures = self.crew.learn(batch, before.policy_version)
        with self.stopwatch.phase(Phase.PUBLISHING):
            if not publishing.wait():
                return None
        with self.stopwatch.phase(Phase.EVALUATION):
            if not self.evaluations.make_room(before.policy_version + 1, is_last=is_last):
                return None
        with self.stopwatch.phase(Phase.SAVING), self.evaluations.paused():
            checkpoint = self.crew.save(file.offer.step, file, before)
        version = checkpoint.policy_version
        self.reporting.step(version, batch, figures, unpublished_seconds, self.batches.groups_by_use)
        self.evaluations.begin(checkpoint, is_last=is_last)
        return checkpoint

    def resume(self) -> Checkpoint:
        """The checkpoint to start at, with the learner where it was; the base model the first time."""
        checkpoint = self.crew.checkpoints.start(self.start)
        if checkpoint is None:
            return self.crew.save(0, None, None)
        self.crew.restore(checkpoint)
        get_logger().info("trainer.resumed", policy_version=checkpoint.policy_version)
        if changes := changed(checkpoint.record.recipe, self.crew.learner.recipe):
            get_logger().warning("recipe.changed", since=checkpoint.policy_version, changes=changes)
        return checkpoint

    def acknowledge(self, checkpoint: Checkpoint) -> bool:
        """Let go of the batch that made this version, which is durable by now; False if stopped before."""

        def tell() -> bool:
            if checkpoint.batch_number is not None:
                self.batches.acknowledge(checkpoint.batch_number)
            return True

        return bool(self.waiting.until("the coordinator", tell))

    @contextmanager
    def publishing(self, checkpoint: Checkpoint) -> Iterator[Publishing]:
        """Publishes the version during the block, which doesn't end well before that is done."""

        def publish() -> bool:
            self.broadcaster.broadcast(checkpoint)
            return True

        awaited = "the coordinator and the chain"
        publishing = Publishing(lambda: bool(self.waiting.until(awaited, publish)), self.stopwatch.clock)
        try:
            yield publishing
        except BaseException:
            self.waiting.stop.set()  # the run is over: nothing is waited for any more
            publishing.join()
            raise
        publishing.wait()

    def take(self, before: Checkpoint, publishing: Publishing) -> tuple[BatchFile, TrainingBatch] | None:
        """A batch of the step after `before` that can be trained on: the pool is told of any that can't.

        None if stopped before.

        Raises VerificationFailed where a refused one is offered again.
        """
        step, refused = before.policy_version + 1, set[int]()
        trained = TrainedGroups.until(before.batch_folder)
        while (offer := self.wait_for_batch(step, publishing)) is not None:
            if offer.number in refused:
                raise VerificationFailed(
                    "the coordinator offers a batch again that was refused",
                    f"batch {offer.number} of step {step}",
                    "ask whoever runs it: a refused batch's submission is unfit, and the others make another batch",
                )
            if (file := self.fetch(offer)) is None:
                return None
            try:
                trained.check(offer)
                return file, self.crew.read(file)
            except UnfitRow as unfit:
                self.refuse(offer, unfit)
                refused.add(offer.number)
        return None

    def wait_for_batch(self, step: int, publishing: Publishing) -> BatchOffer | None:
        """The batch of this step, as soon as there are enough accepted groups; None if stopped before.

        Meanwhile the version before is kept on chain, once it is out: without it nobody leases, and no later one can be
        published.
        """

        def lease() -> BatchOffer | None:
            if publishing.is_out():
                self.broadcaster.keep_on_chain(step - 1)
            return self.batches.lease(step)

        return self.waiting.until(f"the batch of step {step}", lease)

    def fetch(self, offer: BatchOffer) -> BatchFile | None:
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
