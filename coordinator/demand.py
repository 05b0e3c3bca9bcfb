"""How much work the pool still wants: leases end where the trainer couldn't use what they bring.

    rollouts of version v feed steps v + 1 to v + 1 + max_async; the next step to get a batch is s
    v is leased while fewer groups are on their way than steps s to v + 1 + max_async take

In: work in flight for versions that may still be trained on. Out: whether one more task is wanted. Accepted is
paid, used or not, so that work nobody can use costs the pool; this limit is what keeps it small. A synchronous pool
(`max_async` 0) leases nothing while its trainer computes. Work that may never arrive doesn't hold up what replaces it:
a lease counts for the first half of its time, and what is challenged or disputed not until that is over.
"""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from coordinator.batches import next_step
from coordinator.config import CoordinatorConfig
from coordinator.db.chain import Pool
from coordinator.db.work import GroupRow, SubmissionRow, TaskRow
from coordinator.pool import chain_time
from coordinator.rules import rules_document
from protocol.api import Standing, Use
from protocol.errors import Rejected
from protocol.reasons import RejectReason


def check_demand(config: CoordinatorConfig, session: Session, pool: Pool, policy_version: int) -> None:
    """Raises Rejected (`no_demand`) where a task on this version would bring more than can be trained on."""
    wanted = steps_wanted(config, session, pool, policy_version) * config.groups_per_step
    in_flight = groups_in_flight(session, pool)
    if in_flight >= wanted:
        raise Rejected(RejectReason.NO_DEMAND, "groups in flight", value=str(in_flight), threshold=str(wanted))


def steps_wanted(config: CoordinatorConfig, session: Session, pool: Pool, policy_version: int) -> int:
    """How many steps' worth of groups may be in flight: what the configuration says, or what the version can feed."""
    if config.backlog_steps is not None:
        return config.backlog_steps
    return max(0, policy_version + 2 + pool.max_async - next_step(session, pool.pool_id))


def groups_in_flight(session: Session, pool: Pool) -> int:
    """Groups that are leased, being judged, or waiting for a batch, and that the next step may still use."""
    oldest_version = next_step(session, pool.pool_id) - 1 - pool.max_async
    tasks = select(func.count()).where(
        TaskRow.pool_id == pool.pool_id,
        TaskRow.rules_hash == pool.rules_hash,
        TaskRow.policy_version >= oldest_version,
        TaskRow.standing == Standing.LEASED,
        TaskRow.leased_time + TaskRow.deadline > 2 * chain_time(session),
    )
    groups = (
        select(func.count())
        .select_from(GroupRow)
        .join(SubmissionRow, SubmissionRow.submission_id == GroupRow.submission_id)
        .join(TaskRow, TaskRow.task_id == SubmissionRow.task_id)
        .where(
            GroupRow.has_variance,
            GroupRow.policy_version >= oldest_version,
            TaskRow.rules_hash == pool.rules_hash,
            (SubmissionRow.standing == Standing.RECEIVED)
            | ((SubmissionRow.standing == Standing.ACCEPTED) & (GroupRow.use == Use.PENDING)),
        )
    )
    groups_per_task = rules_document(session, pool.rules_hash).groups_per_task
    return (session.scalar(tasks) or 0) * groups_per_task + (session.scalar(groups) or 0)
