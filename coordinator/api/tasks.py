"""/v1/tasks: a node asks for work, for the leases that it holds, or hands one back; anybody looks at one."""

from __future__ import annotations

from fastapi import APIRouter, status

from coordinator import renewals, tasks
from coordinator.api.dependencies import CoordinatorOf, SignedBy
from protocol.api import RenewalRequest, TaskRequest, TaskView
from protocol.wire import Hash32, Renewal, Signed, Task

router = APIRouter(tags=["tasks"])


@router.post("/tasks", status_code=status.HTTP_201_CREATED)
def lease_task(coordinator: CoordinatorOf, caller: SignedBy, request: TaskRequest) -> Signed[Task]:
    """Lease a task to the calling node; each call is another lease, and needs a fresh nonce."""
    return tasks.lease(coordinator, caller, request.policy_version)


@router.get("/tasks")
def open_tasks(coordinator: CoordinatorOf, caller: SignedBy) -> list[Signed[Task]]:
    """The calling node's open leases, oldest first: among them one whose answer was lost on the way."""
    return tasks.open_tasks(coordinator, caller.address)


@router.get("/tasks/{task_id}")
def get_task(coordinator: CoordinatorOf, task_id: Hash32) -> TaskView:
    """A task as it was leased, and the submission that was handed in for it."""
    with coordinator.reading() as session:
        return tasks.task_view(session, task_id)


@router.post("/tasks/{task_id}/renewal")
def renew_task(
    coordinator: CoordinatorOf, caller: SignedBy, task_id: Hash32, request: RenewalRequest
) -> Signed[Renewal]:
    """More time for an open lease of the calling node, within the pool's `leaseMax`; repeating it gives the same."""
    return renewals.renew(coordinator, caller.address, task_id, request.deadline)


@router.delete("/tasks/{task_id}", status_code=status.HTTP_204_NO_CONTENT)
def return_task(coordinator: CoordinatorOf, caller: SignedBy, task_id: Hash32) -> None:
    """Hand back a lease that won't be used; it counts as abandoned."""
    tasks.give_back(coordinator, caller.address, task_id)
