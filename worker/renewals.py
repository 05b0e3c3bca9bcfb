"""More time for tasks at hand, asked for in good time: when half of what was left is over, then half of the rest.

In: the tasks at hand, on this machine's clock. Out: renewals, checked and remembered beside their lease. A refusal
costs nothing: the task is finished by its deadline, or it isn't.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass

from protocol.clock import Clock
from protocol.errors import Rejected, Unreachable, VerificationFailed
from protocol.telemetry import get_logger
from protocol.wire import Signed, Task
from worker.leases import Leases
from worker.membership import Membership

LAST_SECONDS = 2.0
"""So near to its deadline a lease isn't renewed any more."""


@dataclass
class Watched:
    """A lease at hand. `ends` and `asks` are on this machine's clock, `deadline` on the chain's."""

    signed_task: Signed[Task]
    deadline: int
    ends: float
    asks: float


class Renewals:
    """Example: `renewals.watch(signed_task)`; then `if renewals.are_due(ids): renewals.renew(ids)`, in any thread."""

    def __init__(self, leases: Leases, membership: Membership, clock: Clock) -> None:
        self._leases = leases
        self._membership = membership
        self._clock = clock
        self._watched: dict[str, Watched] = {}
        self._lock = threading.Lock()

    def watch(self, signed_task: Signed[Task]) -> None:
        """From now on. Raises Unreachable where the chain doesn't tell its time."""
        deadline = self._leases.deadline(signed_task)
        left = deadline - self._membership.chain.time()
        now = self._clock.now()
        with self._lock:
            watched = Watched(signed_task, deadline, now + left, now + left / 2)
            self._watched[signed_task.message.id(self._membership.domain)] = watched

    def are_due(self, task_ids: Collection[str]) -> bool:
        """Whether one of these tasks should have more time; all others aren't at hand any more."""
        now = self._clock.now()
        with self._lock:
            self._watched = {task_id: one for task_id, one in self._watched.items() if task_id in task_ids}
            return any(_is_due(one, now) for one in self._watched.values())

    def renew(self) -> None:
        """Ask for those that are due."""
        now = self._clock.now()
        with self._lock:
            due = [task_id for task_id, one in self._watched.items() if _is_due(one, now)]
        for task_id in due:
            self._ask(task_id)

    def _ask(self, task_id: str) -> None:
        watched = self._watched.get(task_id)
        if watched is None:  # it has landed meanwhile
            return
        counter = watched.signed_task.message.counter
        watched.asks = self._clock.now() + (watched.ends - self._clock.now()) / 2
        try:
            deadline = self._renewed(task_id, watched)
        except (Unreachable, Rejected, VerificationFailed) as error:
            get_logger().info("task.not_renewed", counter=counter, deadline=watched.deadline, why=str(error))
            return
        watched.ends += deadline - watched.deadline
        watched.deadline = deadline
        watched.asks = self._clock.now() + (watched.ends - self._clock.now()) / 2
        get_logger().info("task.renewed", counter=counter, deadline=deadline)

    def _renewed(self, task_id: str, watched: Watched) -> int:
        """The new deadline. Raises Rejected, Unreachable, or VerificationFailed for one that binds nobody."""
        membership = self._membership
        signed = membership.coordinator.renew_task(task_id, watched.deadline)
        renewal = signed.check(membership.chain.record().coordinator, membership.domain)
        if renewal.task_id != task_id or renewal.deadline < watched.deadline:
            raise VerificationFailed("the coordinator renewed something else", f"{renewal}, not {task_id}")
        self._leases.renew(watched.signed_task, signed)
        return renewal.deadline


def _is_due(watched: Watched, now: float) -> bool:
    return watched.asks <= now < watched.ends - LAST_SECONDS
