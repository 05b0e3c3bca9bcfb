"""The worker's loop: one turn takes one task from lease to outbox.

    follow_weights   consumes SHARDCAST versions              produces the newest complete one, in the engine
    next_task        consumes the coordinator's leases        produces a signed task, remembered on disk
    open_work        consumes the chain's beacon, the rules   produces seed and prompts
    rollouts_of      consumes weights and prompts             produces rollouts with proofs and rewards
    check_own        consumes the first file of a version     raises where a verifier would object
    put, flush       consume the signed file                  produce an outbox entry, then a receipt

Nothing outside ends the loop: whoever doesn't answer, or refuses for a reason that may pass, is waited
for. A fault of this machine, found by `check_own`, ends it before anything is sent. Subclasses may
replace single stages. Run: `proofpool worker run --config FILE`.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence

from protocol.clock import Clock
from protocol.engines.base import Completion, Engine, generate
from protocol.engines.registry import make_engine
from protocol.errors import NotEligible, Rejected, Unreachable, VerificationFailed
from protocol.prover import in_task_order, proofs_of, reward_of, rollout_of
from protocol.rollouts import Rollout
from protocol.telemetry import get_logger
from protocol.wire import Signed, Task
from worker.config import WorkerConfig
from worker.folder import WorkerFolder
from worker.membership import Membership
from worker.outbox import Entry
from worker.patience import Patience
from worker.seal import seal
from worker.selfcheck import SelfCheckFailed, check_file
from worker.tasks import Tasks
from worker.terms import Terms
from worker.uploads import Uploads
from worker.weights import Weights
from worker.work import Work

OUTSIDE = (Unreachable, Rejected, NotEligible, VerificationFailed)
"""Errors that somebody else can mend: waited out, not died of."""
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


class Worker:
    """One node at work in one pool. `turn` passes through all stages once; `run` repeats it."""

    def __init__(
        self,
        membership: Membership,
        folder: WorkerFolder,
        weights: Weights,
        engine: Engine,
        clock: Clock,
        patience: Patience,
    ) -> None:
        self.membership = membership
        self.outbox = folder.outbox
        self.leases = folder.leases
        self.weights = weights
        self.engine = engine
        self.tasks = Tasks(membership, folder.leases, folder.outbox)
        self.terms = Terms(membership)
        self.uploads = Uploads(folder.outbox, membership, clock, patience)
        self._clock = clock
        self._patience = patience
        self._loaded_version: int | None = None
        self._checked_version: int | None = None

    @classmethod
    def make_engine(cls, config: WorkerConfig) -> Engine:
        """The engine that the configuration names."""
        return make_engine(config.engine, max_batch=config.max_batch, dtype=config.dtype, vllm=config.vllm)

    def run(self, stop: threading.Event) -> None:
        """Turn until `stop`; a task at hand is finished first. Raises SelfCheckFailed, and what no wait can mend."""
        while not stop.is_set():
            self._clock.wait(stop, self._patient_turn())

    def turn(self) -> None:
        """One task, from lease to receipt. What an error interrupts is resumed by the next call."""
        self.uploads.flush()
        signed_task = self.next_task()
        work = self.open_work(signed_task)
        self._patience.rewarded()
        rollouts = self.rollouts_of(work)
        entry, file = seal(work, rollouts, self.membership)
        self.check_own(work, entry, file)
        self.outbox.put(entry, file)
        self.leases.forget(signed_task)
        self.uploads.flush()

    def hand_back(self) -> None:
        """Return leases that nobody will work on now. Where that fails they stay remembered, for a restart."""
        try:
            self.tasks.hand_back()
        except OUTSIDE as error:
            get_logger().warning("task.kept", why=str(error))

    def follow_weights(self) -> int:
        """The newest policy version on this machine. Raises Unreachable while there is none."""
        policy_version = self.weights.newest()
        if policy_version is None:
            raise Unreachable("the first policy version isn't here yet", "not published, or still being fetched")
        return policy_version

    def next_task(self) -> Signed[Task]:
        """A task left unfinished or lost, else a new one, leased once its weights are in the engine: leases run out."""
        left = self.tasks.unfinished() or self.tasks.lost()
        if left is not None:
            return left
        policy_version = self.follow_weights()
        self.load_weights(policy_version)
        return self.tasks.lease(policy_version)

    def open_work(self, signed_task: Signed[Task]) -> Work:
        """The task with its rules and environment, its beacon confirmed by the chain, its weights in the engine."""
        self.tasks.check_beacon(signed_task)
        self.load_weights(signed_task.message.policy_version)
        rules = self.terms.rules(signed_task.message.rules_hash)
        folder = self.weights.fetch(signed_task.message.policy_version)
        task_id = signed_task.message.id(self.membership.domain)
        return Work(signed_task, task_id, rules, self.terms.environment(rules, folder))

    def load_weights(self, policy_version: int) -> None:
        """Have the engine take a policy version, unless it has it."""
        if self._loaded_version != policy_version:
            self.engine.load(self.weights.fetch(policy_version))
            self._loaded_version = policy_version
            self.weights.prune(in_use=policy_version)
            get_logger().info("weights.loaded", policy_version=policy_version)

    def rollouts_of(self, work: Work) -> list[Rollout]:
        """Every rollout of the task, in order, with proof and reward."""
        started = self._clock.now()
        completions = self.completions(work)
        proofs = self.proofs(work, completions)
        rewards = self.rewards(work, completions)
        get_logger().info(
            "task.generated",
            counter=work.task.counter,
            num_units=sum(len(completion.output_tokens) for completion in completions),
            reward_mean=round(sum(rewards) / len(rewards), 4),
            seconds=round(self._clock.now() - started, 3),
        )
        return [
            rollout_of(work.prompt_of(completion.sample), completion, proof, reward, work.task.policy_version)
            for completion, proof, reward in zip(completions, proofs, rewards, strict=True)
        ]

    def completions(self, work: Work) -> list[Completion]:
        """What the engine makes of the task's requests, in task order."""
        return in_task_order(list(generate(self.engine, work.requests)), work.num_rollouts)

    def proofs(self, work: Work, completions: Sequence[Completion]) -> list[bytes]:
        """Each completion's TOPLOC proofs."""
        return proofs_of(completions, work.rules.toploc)

    def rewards(self, work: Work, completions: Sequence[Completion]) -> list[float]:
        """Each completion's task reward."""
        return [reward_of(work.environment, work.prompt_of(c.sample), c) for c in completions]

    def check_own(self, work: Work, entry: Entry, file: bytes) -> None:
        """Judge the first file of each policy version as a verifier would. Raises SelfCheckFailed."""
        policy_version = work.task.policy_version
        if self._checked_version != policy_version:
            content_hash = entry.envelope.submission.message.content_hash
            check_file(file, content_hash, work, self.weights.fetch(policy_version))
            self._checked_version = policy_version

    def _patient_turn(self) -> float:
        """One turn; seconds to wait before the next."""
        try:
            self.turn()
        except SelfCheckFailed:
            raise
        except OUTSIDE as error:
            return self._patience.wait_for(error)
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            return self._patience.wait_for(error)
        return 0.0
