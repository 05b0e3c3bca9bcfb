"""How much work the pool still wants: leases end where the trainer couldn't use what they bring.

In: work in flight for versions that may still be trained on. Out: whether one more task is wanted. Accepted is
paid, used or not, so that work nobody can use costs the pool; this limit is what keeps it small.
"""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from coordinator.config import CoordinatorConfig
from coordinator.db.work import GroupRow, TaskRow
from coordinator.standing import OPEN
from protocol.api import Use


def groups_wanted(config: CoordinatorConfig) -> int:
    """The most groups in flight: what `backlog_steps` optimizer steps take."""
    return config.backlog_steps * config.groups_per_step


def groups_in_flight(session: Session, pool_id: int, oldest_version: int, groups_per_task: int) -> int:
    """Groups that are leased, being judged, or waiting for a batch, of `oldest_version` and newer."""
    num_tasks = session.scalar(
        select(func.count())
        .select_from(TaskRow)
        .where(TaskRow.pool_id == pool_id, TaskRow.policy_version >= oldest_version, TaskRow.standing.in_(OPEN))
    )
    num_pending = session.scalar(
        select(func.count())
        .select_from(GroupRow)
        .where(GroupRow.use == Use.PENDING, GroupRow.has_variance, GroupRow.policy_version >= oldest_version)
    )
    return (num_tasks or 0) * groups_per_task + (num_pending or 0)
