"""Where tasks come from: leases left unfinished by an earlier run, those whose answer got lost, then new ones.

In: the policy version that this machine has. Out: a signed task, checked and remembered on disk before
any work on it begins. A lease is made when the coordinator commits it, not when its answer arrives: killed or cut off
in between, the node holds a lease that it doesn't know of, and asks for it before it asks for another.
"""

from __future__ import annotations

from collections.abc import Collection

from protocol.chain.pool import PoolRecord
from protocol.errors import ChainError, NotEligible, NotFound, Rejected, VerificationFailed
from protocol.telemetry import get_logger
from protocol.wire import Signed, Task
from worker.leases import Leases
from worker.membership import Membership
from worker.outbox import Outbox


class Tasks:
    """Example: `tasks.unfinished() or tasks.lost() or tasks.lease(0)`, then `tasks.check_beacon(signed_task)`."""

    def __init__(self, membership: Membership, leases: Leases, outbox: Outbox) -> None:
        self._membership = membership
        self._leases = leases
        self._outbox = outbox
        self._may_have_lost = True
        self._passed_over: set[str] = set()

    def unfinished(self, at_hand: Collection[str] = ()) -> Signed[Task] | None:
        """A remembered task that can still be finished, and isn't `at_hand` (ids); those that can't are forgotten."""
        for signed_task in self._leases.open():
            task_id = self._id(signed_task.message)
            if task_id in at_hand:
                continue
            if self._outbox.knows(task_id):
                self._leases.forget(signed_task)
            elif self._leases.deadline(signed_task) <= self._membership.chain.time():
                get_logger().warning("task.expired", counter=signed_task.message.counter)
                self._leases.forget(signed_task)
            else:
                return signed_task
        return None

    def lost(self, at_hand: Collection[str] = ()) -> Signed[Task] | None:
        """A task that was leased to this node without its knowing. Asks once after a start or a failed `lease`."""
        if not self._may_have_lost:
            return None
        for signed_task in self._membership.coordinator.open_tasks():
            task_id = self._id(signed_task.message)
            if task_id not in at_hand and not self._outbox.knows(task_id):
                self._take_lost(signed_task, task_id)
        self._may_have_lost = False
        return self.unfinished(at_hand)

    def lease(self, policy_version: int) -> Signed[Task]:
        """A new task of this policy version. Raises Rejected where the coordinator gives none, VerificationFailed."""
        self._may_have_lost = True
        signed_task = self._membership.coordinator.lease(policy_version)
        if (deadline := signed_task.message.deadline) <= (now := self._membership.chain.time()):
            raise VerificationFailed("the coordinator leased a task that is over", f"deadline {deadline}, now {now}")
        self._take(signed_task, policy_version)
        self._may_have_lost = False
        return signed_task

    def hand_back(self) -> None:
        """Return every remembered task that has no submission; one whose return is refused stays remembered.

        Raises Unreachable; those not yet returned stay remembered.
        """
        for signed_task in self._leases.open():
            self.give_back(signed_task)

    def give_back(self, signed_task: Signed[Task]) -> None:
        """Return one; where that is refused it stays remembered. Raises Unreachable."""
        try:
            self._return(signed_task)
        except (Rejected, NotFound) as error:
            get_logger().warning("task.kept", counter=signed_task.message.counter, why=str(error))

    def check_beacon(self, signed_task: Signed[Task]) -> None:
        """The seed must come from the chain: raises VerificationFailed where the task names another beacon."""
        task = signed_task.message
        sealed = self._membership.chain.version(task.policy_version).beacon_hash
        if sealed is None:
            raise ChainError("the chain has no beacon for this task yet", f"policy version {task.policy_version}")
        if sealed != task.beacon_hash:
            self._leases.forget(signed_task)
            raise VerificationFailed("a task names another beacon than the chain", f"{task.beacon_hash}, not {sealed}")

    def _take(self, signed_task: Signed[Task], policy_version: int) -> None:
        """Remember a task. Raises VerificationFailed or NotEligible where it isn't one to work on."""
        pool = self._membership.chain.record()
        task = signed_task.check(pool.coordinator, self._membership.domain)
        self._check_asked(task, policy_version)
        _check_terms(task, pool)
        self._leases.remember(signed_task)
        get_logger().info("task.leased", policy_version=policy_version, counter=task.counter, deadline=task.deadline)

    def _take_lost(self, signed_task: Signed[Task], task_id: str) -> None:
        """One that isn't to be worked on is passed over, with a word the first time: the others are."""
        try:
            self._take(signed_task, signed_task.message.policy_version)
            self._find_renewal(signed_task, task_id)
        except (VerificationFailed, NotEligible, Rejected, NotFound) as error:
            if task_id not in self._passed_over:
                self._passed_over.add(task_id)
                get_logger().warning("lease.passed_over", counter=signed_task.message.counter, why=str(error))

    def _return(self, signed_task: Signed[Task]) -> None:
        task_id = self._id(signed_task.message)
        if not self._outbox.knows(task_id):
            self._membership.coordinator.return_task(task_id)
            get_logger().info("task.returned", counter=signed_task.message.counter)
        self._leases.forget(signed_task)

    def _find_renewal(self, signed_task: Signed[Task], task_id: str) -> None:
        renewal = self._membership.coordinator.task(task_id).renewal
        if renewal is not None:
            renewed = renewal.check(self._membership.chain.record().coordinator, self._membership.domain)
            if renewed.task_id == task_id and renewed.deadline > signed_task.message.deadline:
                self._leases.renew(signed_task, renewal)

    def _check_asked(self, task: Task, policy_version: int) -> None:
        leased = (task.pool_id, task.node, task.policy_version)
        asked = (self._membership.pool_id, self._membership.node, policy_version)
        if leased != asked:
            raise VerificationFailed("the coordinator leased something that wasn't asked for", f"{leased}, not {asked}")
        if self._outbox.knows(self._id(task)):
            raise NotEligible("the coordinator leased a finished task again", f"counter {task.counter}")
        # One seed would be worked on twice, under one id or two.
        if self._outbox.has_landed(*_seeded(task)):
            why = f"policy version {task.policy_version}, counter {task.counter}: it has a submission already"
            raise NotEligible("the coordinator gave a counter out again", why)
        if any(_seeded(other.message) == _seeded(task) for other in self._leases.open()):
            raise VerificationFailed("the coordinator leased a task at hand again", f"counter {task.counter}")

    def _id(self, task: Task) -> str:
        return task.id(self._membership.domain)


def _seeded(task: Task) -> tuple[int, int]:
    """What tells a node's seeds apart."""
    return task.policy_version, task.counter


def _check_terms(task: Task, pool: PoolRecord) -> None:
    """Rules and price must be ones that the pool has on chain."""
    if task.rules_hash not in pool.rules_hashes:
        raise VerificationFailed("a task names rules that the pool hasn't on chain", task.rules_hash)
    if task.price_wei not in pool.prices_wei:
        known = ", ".join(map(str, sorted(pool.prices_wei)))
        raise VerificationFailed("a task has a price that the pool hasn't on chain", f"{task.price_wei}, not {known}")
