"""How policy versions spread: when each was announced, and which nodes have leased work on it since when.

In: versions, the log, tasks. Out: `VersionSpread` for the newest ones. A node leases on the newest version that it
holds completely, so its first lease of a version says that it has it by then; who is in the midst of a task says it
later.
"""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from coordinator.db.chain import Version
from coordinator.db.log import Event
from coordinator.db.work import TaskRow
from coordinator.mirrors import ANNOUNCED
from protocol.api import MAX_ARRIVALS, NodeArrival, VersionSpread


def spread(session: Session, pool_id: int, limit: int) -> list[VersionSpread]:
    """Of at most `limit` announced versions, newest first."""
    versions = (
        select(Version)
        .where(Version.pool_id == pool_id, Version.release_signature.is_not(None))
        .order_by(Version.policy_version.desc())
        .limit(limit)
    )
    return [_spread_of(session, version) for version in session.scalars(versions)]


def _spread_of(session: Session, version: Version) -> VersionSpread:
    of_version = (TaskRow.pool_id == version.pool_id, TaskRow.policy_version == version.policy_version)
    first = func.min(TaskRow.leased_time)
    arrivals = select(TaskRow.node, first).where(*of_version).group_by(TaskRow.node).order_by(first, TaskRow.node)
    return VersionSpread(
        policy_version=version.policy_version,
        manifest_hash=version.manifest_hash,
        published_time=version.published_time,
        announced_time=_announced_time(session, version),
        num_nodes=session.scalar(select(func.count(TaskRow.node.distinct())).where(*of_version)) or 0,
        nodes=tuple(
            NodeArrival(node=node, first_lease_time=time)
            for node, time in session.execute(arrivals.limit(MAX_ARRIVALS)).all()
        ),
    )


def _announced_time(session: Session, version: Version) -> int:
    """Of its leaf; as long as a reorg has taken that out of the log, when it was published."""
    found = select(func.min(Event.time)).where(Event.type == ANNOUNCED, Event.subject == version.manifest_hash)
    return session.scalar(found) or version.published_time
