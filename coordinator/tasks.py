"""Leases: work for one node, with price, rules, beacon and deadline fixed when it is given out.

In: a node's signed request. Out: a signed `Task`, or the refusal with its reason. Counters are given out
without gaps for each (pool, policy version, node); one that isn't used is burnt, and the log says so.
"""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from coordinator import escrow, log
from coordinator.context import Coordinator
from coordinator.db.chain import Pool, Version
from coordinator.db.work import SubmissionRow, TaskRow
from coordinator.demand import check_demand
from coordinator.door import counting_refusals
from coordinator.limits import lease_history, lease_limit
from coordinator.nodes import provider_of
from coordinator.nonces import use_nonce
from coordinator.pool import chain_time, check_in_office, missing_bond_wei, newest_version, pool_record
from coordinator.refusals import Door
from coordinator.renewals import renewal_of
from coordinator.rules import rules_document
from coordinator.standing import OPEN, move
from protocol.api import Standing, TaskView
from protocol.errors import NotFound, Rejected
from protocol.http import Caller
from protocol.reasons import RejectReason
from protocol.wire import Signed, Task


def lease(coordinator: Coordinator, caller: Caller, policy_version: int) -> Signed[Task]:
    """A new task for the calling node on `policy_version`. Raises Rejected where it may not have one."""
    with counting_refusals(coordinator, Door.LEASES, caller.address), coordinator.writing() as session:
        pool = pool_record(session, coordinator.config.pool_id)
        use_nonce(session, caller, coordinator.clock.now())
        provider = check_lease(coordinator, session, pool, caller.address, policy_version)
        return _give(coordinator, session, pool, caller.address, provider, policy_version)


def check_lease(coordinator: Coordinator, session: Session, pool: Pool, node: str, policy_version: int) -> str:
    """Whether this node may have a task now: its provider. Raises Rejected with the first reason against it."""
    _check_open(session, pool)
    check_in_office(coordinator, pool)
    provider = provider_of(session, pool, node)
    _check_version(session, pool, policy_version)
    _check_limit(session, node, coordinator.config.max_leases)
    if lease_history(session, node):  # the first one is given in any case: a node has to show what it can do
        check_demand(coordinator.config, session, pool, policy_version)
    _check_funds(session, pool)
    return provider


def _check_open(session: Session, pool: Pool) -> None:
    if pool.closing:
        raise Rejected(RejectReason.POOL_CLOSED, f"pool {pool.pool_id} leases nothing more")
    if pool.paused:
        raise Rejected(RejectReason.POOL_PAUSED, f"pool {pool.pool_id} was paused on chain")
    if missing_wei := missing_bond_wei(session, pool):
        raise Rejected(
            RejectReason.POOL_PAUSED,
            "the coordinator's bond isn't whole (base units)",
            value=str(pool.coordinator_bond_wei - missing_wei),
            threshold=str(pool.coordinator_bond_wei),
        )


def _check_version(session: Session, pool: Pool, policy_version: int) -> None:
    newest = newest_version(session, pool.pool_id)
    if newest is None:
        raise Rejected(RejectReason.STALE_POLICY, "no policy version is published and sealed yet")
    if policy_version > newest:
        raise Rejected(
            RejectReason.STALE_POLICY,
            "this policy version isn't published and sealed",
            value=str(policy_version),
            threshold=str(newest),
        )
    if policy_version < newest - pool.max_async:
        raise Rejected(
            RejectReason.STALE_POLICY,
            f"the newest policy version is {newest}",
            value=str(policy_version),
            threshold=str(newest - pool.max_async),
        )


def _check_limit(session: Session, node: str, most: int) -> None:
    history = lease_history(session, node)
    num_open, limit = history.count(Standing.LEASED), lease_limit(history, most)
    if num_open >= limit:
        raise Rejected(RejectReason.LEASE_LIMIT, "open leases of this node", value=str(num_open), threshold=str(limit))


def _check_funds(session: Session, pool: Pool) -> None:
    cost_wei = escrow.reservation_wei(pool, rules_document(session, pool.rules_hash).max_units)
    if not escrow.can_reserve(session, pool, cost_wei):
        raise Rejected(
            RejectReason.ESCROW_EMPTY,
            "free funds against what a task may cost (base units)",
            value=str(escrow.free_wei(session, pool)),
            threshold=str(cost_wei),
        )


def _give(
    coordinator: Coordinator, session: Session, pool: Pool, node: str, provider: str, policy_version: int
) -> Signed[Task]:
    version = session.get_one(Version, (pool.pool_id, policy_version))
    now = chain_time(session)
    message = Task(
        pool_id=pool.pool_id,
        policy_version=policy_version,
        node=node,
        counter=_next_counter(session, pool.pool_id, policy_version, node),
        rules_hash=pool.rules_hash,
        beacon_block=version.beacon_block,
        beacon_hash=version.beacon_hash or "",
        price_wei=pool.price_wei,
        max_units=rules_document(session, pool.rules_hash).max_units,
        deadline=now + min(coordinator.config.lease_seconds, pool.lease_max_seconds),
    )
    signed = Signed[Task].by(coordinator.signer, message, coordinator.domain)
    _keep(session, pool, provider, message.id(coordinator.domain), signed, now)
    return signed


def _keep(session: Session, pool: Pool, provider: str, task_id: str, signed: Signed[Task], now: int) -> None:
    """The task's row, its reservation and its event."""
    message = signed.message
    reserved_wei = escrow.reservation_wei(pool, message.max_units)
    escrow.reserve(session, pool.pool_id, reserved_wei)
    log_index = log.append(
        session,
        "task.leased",
        task_id,
        now,
        {
            "node": message.node,
            "provider": provider,
            "policy_version": message.policy_version,
            "counter": message.counter,
            "deadline": message.deadline,
            "reserved_wei": str(reserved_wei),
        },
    )
    session.add(
        TaskRow(
            task_id=task_id,
            pool_id=message.pool_id,
            policy_version=message.policy_version,
            node=message.node,
            provider=provider,
            counter=message.counter,
            rules_hash=message.rules_hash,
            signed_task=signed.model_dump(mode="json"),
            deadline=message.deadline,
            max_units=message.max_units,
            price_wei=message.price_wei,
            verify_price_wei=pool.verify_price_wei,
            reserved_wei=reserved_wei,
            standing=Standing.LEASED,
            leased_time=now,
            log_index=log_index,
        )
    )


def _next_counter(session: Session, pool_id: int, policy_version: int, node: str) -> int:
    last = session.scalar(
        select(func.max(TaskRow.counter)).where(
            TaskRow.pool_id == pool_id, TaskRow.policy_version == policy_version, TaskRow.node == node
        )
    )
    return 0 if last is None else last + 1


def open_tasks(coordinator: Coordinator, node: str) -> list[Signed[Task]]:
    """What `node` has leased and not yet handed in, oldest first; `lease_limit` bounds how many that can be."""
    with coordinator.reading() as session:
        leased = select(TaskRow.signed_task).where(TaskRow.node == node, TaskRow.standing == Standing.LEASED)
        return [Signed[Task].model_validate(task) for task in session.scalars(leased.order_by(TaskRow.log_index))]


def task_view(session: Session, task_id: str) -> TaskView:
    """Raises NotFound where no such task was leased."""
    row = session.get(TaskRow, task_id)
    if row is None:
        raise NotFound("no such task", task_id, "a rollout file names its own in its header")
    handed_in = select(SubmissionRow.submission_id).where(SubmissionRow.task_id == task_id)
    return TaskView(
        task=Signed[Task].model_validate(row.signed_task),
        standing=Standing(row.standing),
        submission_id=session.scalar(handed_in),
        renewal=renewal_of(row),
    )


def give_back(coordinator: Coordinator, node: str, task_id: str) -> None:
    """A node returns a lease that it won't use. Doing so twice is doing so once."""
    with coordinator.writing() as session:
        task = session.get(TaskRow, task_id)
        if task is None or task.node != node:
            raise Rejected(RejectReason.LEASE_UNKNOWN, f"{task_id} isn't leased to {node}")
        if task.standing == Standing.LEASED:
            move(session, task, Standing.ABANDONED)


def expire_leases(coordinator: Coordinator) -> None:
    """Stage of the loop: leases past their deadline (chain time) end, and their counters are burnt."""
    with coordinator.reading() as session:
        overdue = _overdue(session)
    if overdue:
        with coordinator.writing() as session:
            for task in _overdue(session):
                move(session, task, Standing.EXPIRED)


def void_tasks(session: Session, policy_version: int) -> None:
    """A reorg took this version's beacon away: its open work counts for nobody and against nobody."""
    open_work = select(TaskRow).where(TaskRow.policy_version == policy_version, TaskRow.standing.in_(OPEN))
    for task in session.scalars(open_work.order_by(TaskRow.log_index)).all():
        submission = session.scalar(select(SubmissionRow).where(SubmissionRow.task_id == task.task_id))
        move(session, task, Standing.REORGED, submission)


def _overdue(session: Session) -> list[TaskRow]:
    return list(
        session.scalars(
            select(TaskRow)
            .where(TaskRow.standing == Standing.LEASED, TaskRow.deadline < chain_time(session))
            .order_by(TaskRow.log_index)
        )
    )
