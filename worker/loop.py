"""The worker's loop: tasks from lease to outbox, several of one policy version at once.

    follow_weights   consumes SHARDCAST versions              produces the newest complete one, in the engine
    next_task        consumes the coordinator's leases        produces a signed task, remembered on disk
    open_work        consumes the chain's beacon, the rules   produces seed and prompts
    board            consumes an opened task                  produces its requests, in the engine
    fly              consumes the engine's steps              produces a task whose rollouts are all there
    rollouts_of      consumes completions                     produces rollouts with proofs and rewards
    check_own        consumes the first file of a version     raises where a verifier would object
    land             consumes the signed file                 produces an outbox entry
    send             consumes the outbox                      produces receipts

While one task generates, the next is leased and opened in a thread (`worker/errand.py`), and boards as soon as no
request waits for room; uploads and renewals have threads too. A task is finished with the version that its lease
names: while others of an older one are in the engine, a newer version waits until they have landed.

Nothing outside ends the loop: whoever doesn't answer, or refuses for a reason that may pass, is waited
for. A fault of this machine, found by `check_own`, ends it before anything is sent. Subclasses may
replace single stages. Run: `proofpool worker run --config FILE`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from protocol.clock import Clock
from protocol.engines.base import Completion, LiveEngine, Request
from protocol.engines.registry import make_engine
from protocol.errors import ProofpoolError, RolloutTooLong, Unreachable
from protocol.prover import in_task_order, proofs_of, reward_of, rollout_of
from protocol.rollouts import Rollout
from protocol.telemetry import get_logger
from protocol.wire import Signed, Task
from worker.bounds import Bounds
from worker.config import WorkerConfig
from worker.errand import Errand
from worker.flights import Flight, Flights
from worker.folder import WorkerFolder
from worker.membership import Membership
from worker.outbox import Entry
from worker.patience import OUTSIDE, Patience, may_pass
from worker.renewals import Renewals
from worker.seal import seal
from worker.selfcheck import SelfCheckFailed, check_file
from worker.tasks import Tasks
from worker.terms import Terms
from worker.uploads import Uploads
from worker.weights import Weights
from worker.work import Work

AHEAD_SECONDS = 1.0
"""Between two looks for a task to fetch ahead, where there was none of this version."""
SEND_SECONDS = 1.0
"""Between two looks at what the outbox still holds; what is new is sent at once."""
MOST_PATCHES = 3
"""Each is decoded over the whole model: more of them take longer than a load."""


class Worker:
    """One node at work in one pool. `turn` goes on until one more task has landed; `run` repeats it."""

    def __init__(
        self,
        membership: Membership,
        folder: WorkerFolder,
        weights: Weights,
        engine: LiveEngine,
        clock: Clock,
        patience: Patience,
        bounds: Bounds,
        executor: Executor,
    ) -> None:
        self.membership = membership
        self.folder = folder
        self.outbox = folder.outbox
        self.leases = folder.leases
        self.weights = weights
        self.engine = engine
        self.bounds = bounds
        self.flights = Flights()
        self.tasks = Tasks(membership, folder.leases, folder.outbox)
        self.terms = Terms(membership)
        self.uploads = Uploads(folder.outbox, membership, clock, patience)
        self.renewals = Renewals(folder.leases, membership, clock)
        self._sending = Errand(self.uploads.flush, executor, clock, patience.another(), SEND_SECONDS)
        self._ahead = Errand(self._next_of_loaded, executor, clock, patience.another(quiet=True), AHEAD_SECONDS)
        self._renewing = Errand(self.renewals.renew, executor, clock, patience.another())
        self._cramped = patience.another()
        self._clock = clock
        self._patience = patience
        self._stop = threading.Event()
        self._loaded_version: int | None = None
        self._checked_version: int | None = None

    @classmethod
    def make_engine(cls, config: WorkerConfig) -> LiveEngine:
        """The engine that the configuration names."""
        return make_engine(
            config.engine,
            max_batch=config.max_batch,
            dtype=config.dtype,
            max_cache_tokens=config.max_cache_tokens,
            vllm=config.vllm,
        )

    def run(self, stop: threading.Event) -> None:
        """Turn until `stop`, then drain. Raises SelfCheckFailed, and what no wait can mend."""
        self._stop = stop
        while not stop.is_set():
            self._clock.wait(stop, self._patiently(self.turn))
        self._stop = threading.Event()
        self.drain()

    def turn(self) -> None:
        """Until one more task has landed. What an error interrupts is resumed by the next call."""
        self.send()
        if not self.flights:
            self.board(self.next_work())
            self._patience.rewarded()
        flight = self.fly()
        if flight is not None:
            self.land(flight)
            self.send()

    def drain(self) -> None:
        """After a stop: finish what is in the engine and send it, within the bound; then hand back what is left."""
        until = self._clock.now() + self.bounds.drain_seconds
        if self.flights or self.outbox.num_pending:
            num_unsent = self.outbox.num_pending
            counters, seconds = self.flights.counters, self.bounds.drain_seconds
            get_logger().info("worker.draining", counters=counters, num_unsent=num_unsent, seconds=seconds)
        while self.flights and self._clock.now() < until:
            self._clock.wait(threading.Event(), self._patiently(self._drain_one))
        self._ahead.finish(max(0.0, until - self._clock.now()))
        self.engine.abort()
        self.flights.drop()
        self.hand_back()
        self._send_the_rest(until)

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

    def next_work(self) -> Work:
        """A task to generate now, its weights in the engine: the one that was fetched ahead, or another."""
        work = self._ahead.finish()
        return work if work is not None else self.open_work(self.next_task())

    def next_task(self) -> Signed[Task]:
        """A task left unfinished or lost, else a new one, leased once its weights are in the engine: leases run out."""
        left = self.tasks.unfinished() or self.tasks.lost()
        if left is not None:
            return left
        policy_version = self.follow_weights()
        self.bounds.check(self.folder.path)
        self.load_weights(policy_version)
        return self.tasks.lease(policy_version)

    def open_work(self, signed_task: Signed[Task]) -> Work:
        """The task with its rules and environment, its beacon confirmed by the chain, its weights in the engine."""
        self.tasks.check_beacon(signed_task)
        self.renewals.watch(signed_task)
        self.load_weights(signed_task.message.policy_version)
        rules = self.terms.rules(signed_task.message.rules_hash)
        folder = self.weights.fetch(signed_task.message.policy_version)
        task_id = signed_task.message.id(self.membership.domain)
        work = Work(signed_task, task_id, rules, self.terms.environment(rules, folder))
        work.make_prompts()  # here, where nothing waits for them
        return work

    def load_weights(self, policy_version: int) -> None:
        """Have the engine take a policy version, unless it has it: by patches in place, or else whole."""
        if self._loaded_version != policy_version:
            folder, started = self.weights.fetch(policy_version), self._clock.now()
            num_patches = self._patch(policy_version, folder)
            if not num_patches:
                self._loaded_version = None  # what is left of a load that fails is no version
                self.engine.load(folder)
            self._loaded_version = policy_version
            self.weights.prune(in_use=policy_version)
            get_logger().info(
                "weights.loaded",
                policy_version=policy_version,
                way="patches" if num_patches else "load",
                num_patches=num_patches,
                seconds=round(self._clock.now() - started, 3),
            )

    def _patch(self, policy_version: int, folder: Path) -> int:
        """By how many patches the engine became the version; 0 where it has to be loaded."""
        if self._loaded_version is None:
            return 0
        try:
            patches = self.weights.patches(self._loaded_version, policy_version)
            if not 0 < len(patches) <= MOST_PATCHES:
                return 0
            self.engine.apply(patches, folder)
        except (ProofpoolError, OSError) as error:
            get_logger().warning("weights.not_patched", policy_version=policy_version, why=str(error))
            return 0
        return len(patches)

    def board(self, work: Work) -> None:
        """Give the engine a task's requests, beside those of others of its policy version.

        Raises RolloutTooLong for one that the engine has no room for: its lease is returned.
        """
        requests = self.requests(work)
        try:
            self.engine.add(requests)
        except RolloutTooLong:
            self.tasks.give_back(work.signed_task)
            raise
        self.flights.board(work, requests, self._clock.now())

    def requests(self, work: Work) -> list[Request]:
        """What the engine is asked for: every rollout of the task."""
        return work.requests

    def fly(self) -> Flight | None:
        """Step until the rollouts of one task are all there; None where a stop comes first."""
        while (arrived := self.flights.arrived()) is None and not self._stop.is_set():
            self._look_ahead()
            self._step()
        return arrived

    def land(self, flight: Flight) -> None:
        """Make the task's submission and put it in the outbox; what can't be written is kept, and not made again."""
        if flight.sealed is None:
            flight.sealed = seal(flight.work, self.rollouts_of(flight), self.membership)
        entry, file = flight.sealed
        self.check_own(flight.work, entry, file)
        self.outbox.put(entry, file)
        self.flights.landed(flight)
        self.leases.forget(flight.work.signed_task)
        self._sending.hurry()

    def rollouts_of(self, flight: Flight) -> list[Rollout]:
        """Every rollout of the task, in order, with proof and reward."""
        work = flight.work
        completions = self.completions(work, flight.completions)
        proofs = self.proofs(work, completions)
        rewards = self.rewards(work, completions)
        get_logger().info(
            "task.generated",
            counter=work.task.counter,
            num_units=sum(len(completion.output_tokens) for completion in completions),
            reward_mean=round(sum(rewards) / len(rewards), 4),
            seconds=round(self._clock.now() - flight.started, 3),
        )
        return [
            rollout_of(work.prompt_of(completion.sample), completion, proof, reward, work.task.policy_version)
            for completion, proof, reward in zip(completions, proofs, rewards, strict=True)
        ]

    def completions(self, work: Work, finished: Sequence[Completion]) -> list[Completion]:
        """What the engine has made of the task's requests, in task order."""
        return in_task_order(finished, work.num_rollouts)

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

    def send(self) -> None:
        """Have the outbox sent, in its thread."""
        self._sending.take()
        self._sending.start()

    def _step(self) -> None:
        """One step of the engine; what waits for others goes on beside it."""
        self.flights.note(self.engine.step())
        if not (self.engine.has_work or self.flights.arrived()):
            raise ProofpoolError("the engine has lost requests", f"of tasks {self.flights.counters}")
        self.send()
        self._renewing.take()
        if self.renewals.are_due(self.flights.task_ids):
            self._renewing.start()

    def _look_ahead(self) -> None:
        """Fetch the next task while there is room for it, and let it board."""
        if self._ahead.is_under_way:
            work = self._ahead.take()
            if work is not None:
                self._board_ahead(work)
        elif self._has_room_ahead() and self.weights.newest() == self._loaded_version:
            self._ahead.start()

    def _board_ahead(self, work: Work) -> None:
        """What is in the engine goes on where there is no room for this one."""
        try:
            self.board(work)
        except RolloutTooLong as error:
            self._ahead.put_off(self._cramped.wait_for(error))
        else:
            self._cramped.rewarded()

    def _has_room_ahead(self) -> bool:
        return not self.engine.num_waiting and len(self.flights) < self.bounds.max_tasks

    def _next_of_loaded(self) -> Work | None:
        """In a thread: another task of the version in the engine; None where there is only one of another version."""
        at_hand = self.flights.task_ids
        signed_task = self.tasks.unfinished(at_hand) or self.tasks.lost(at_hand)
        if signed_task is None:
            assert self._loaded_version is not None
            self.bounds.check(self.folder.path)
            signed_task = self.tasks.lease(self._loaded_version)
        if signed_task.message.policy_version != self._loaded_version:
            return None
        return self.open_work(signed_task)

    def _drain_one(self) -> None:
        """One more task of those in the engine."""
        while (flight := self.flights.arrived()) is None:
            self._step()
        self.land(flight)

    def _send_the_rest(self, until: float) -> None:
        """Wait for uploads under way; what isn't answered then stays in the outbox, for a restart."""
        self._sending.finish(max(0.0, until - self._clock.now()))
        self._sending.hurry()
        self.send()
        self._sending.finish(max(0.0, until - self._clock.now()))
        if left := self.outbox.num_pending:
            get_logger().info("outbox.kept", num_submissions=left)

    def _patiently(self, act: Callable[[], None]) -> float:
        """Act once; seconds to wait before the next time."""
        try:
            act()
        except SelfCheckFailed:
            raise
        except Exception as error:
            if not may_pass(error):
                raise
            return self._patience.wait_for(error)
        return 0.0
