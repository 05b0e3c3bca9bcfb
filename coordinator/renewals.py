"""More time for a lease whose worker is still at it: asked for before the deadline, granted within the pool's bound.

    leased ──lease_seconds──▶ deadline ──renewed, from now on again──▶ … never past leased + the pool's `leaseMax`

In: the node's signed request, with the deadline that it knows. Out: a signed `Renewal`, its `task.renewed` leaf in the
same transaction; or the refusal with its reason. The same request again gets the same renewal. The chain's own times
(unbonding, closing) count with `leaseMax` from the lease on, which is why nothing goes past it.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from coordinator import log
from coordinator.config import CoordinatorConfig
from coordinator.context import Coordinator
from coordinator.db.chain import Pool
from coordinator.db.work import TaskRow
from coordinator.door import counting_refusals
from coordinator.nodes import provider_of
from coordinator.pool import chain_time, check_in_office, newest_version, pool_record
from coordinator.refusals import Door
from coordinator.standing import check_lease_open
from protocol.errors import Rejected
from protocol.reasons import RejectReason
from protocol.wire import Renewal, Signed

RENEWED = "task.renewed"


def renew(coordinator: Coordinator, node: str, task_id: str, known_deadline: int) -> Signed[Renewal]:
    """A later deadline for the node's open lease than the one that it knows. Raises Rejected."""
    with counting_refusals(coordinator, Door.LEASES, node), coordinator.writing() as session:
        pool = pool_record(session, coordinator.config.pool_id)
        check_in_office(coordinator, pool)
        provider_of(session, pool, node)
        task = _open_lease(session, node, task_id)
        if task.signed_renewal is not None and task.deadline != known_deadline:
            return Signed[Renewal].model_validate(task.signed_renewal)
        _check_wanted(session, pool, task.policy_version)
        return _grant(coordinator, session, task, _later(coordinator.config, pool, task, chain_time(session)))


def _open_lease(session: Session, node: str, task_id: str) -> TaskRow:
    task = session.get(TaskRow, task_id)
    if task is None or task.node != node:
        raise Rejected(RejectReason.LEASE_UNKNOWN, f"{task_id} isn't leased to {node}")
    check_lease_open(task, chain_time(session))
    return task


def _check_wanted(session: Session, pool: Pool, policy_version: int) -> None:
    """Nobody waits longer for what nobody can train on."""
    oldest = (newest_version(session, pool.pool_id) or 0) - pool.max_async
    if policy_version < oldest:
        raise Rejected(
            RejectReason.STALE_POLICY, "policy version of the lease", value=str(policy_version), threshold=str(oldest)
        )


def _later(config: CoordinatorConfig, pool: Pool, task: TaskRow, now: int) -> int:
    """The new deadline: as long from now as a lease lasts, within the pool's bound. Raises Rejected.

    Who has more than half of that left comes too early: each renewal is a leaf of the log.
    """
    last = task.leased_time + pool.lease_max_seconds
    if task.deadline >= last:
        raise Rejected(RejectReason.RENEWAL_LIMIT, "deadline", value=str(task.deadline), threshold=str(last))
    if 2 * (task.deadline - now) > config.lease_seconds:
        raise Rejected(
            RejectReason.RATE_LIMITED,
            "seconds until the deadline, of which a lease can be renewed",
            value=str(task.deadline - now),
            threshold=str(config.lease_seconds // 2),
        )
    return min(now + config.lease_seconds, last)


def _grant(coordinator: Coordinator, session: Session, task: TaskRow, deadline: int) -> Signed[Renewal]:
    signed = Signed[Renewal].by(
        coordinator.signer, Renewal(task_id=task.task_id, deadline=deadline), coordinator.domain
    )
    task.deadline = deadline
    task.signed_renewal = signed.model_dump(mode="json")
    log.append(
        session,
        RENEWED,
        task.task_id,
        chain_time(session),
        {"node": task.node, "provider": task.provider, "deadline": deadline},
    )
    return signed


def renewal_of(task: TaskRow) -> Signed[Renewal] | None:
    """What has moved this task's deadline last, if anything has."""
    return None if task.signed_renewal is None else Signed[Renewal].model_validate(task.signed_renewal)
