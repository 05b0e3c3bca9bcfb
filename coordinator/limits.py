"""How many leases a node may hold: slow start, and one at a time for those that abandon work.

In: how a node's last leases ended, oldest first. Out: a number of open leases.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from coordinator.db.work import TaskRow
from protocol.api import Standing

HISTORY = 200
MAX_LOST = 10
"""5 % of `HISTORY`: with more leases lost than that, one at a time."""

_LOST = (Standing.EXPIRED, Standing.ABANDONED)


def lease_limit(history: Sequence[str], most: int) -> int:
    """1 to begin with; doubled by each accepted lease, halved by each expired one, at most `most`.

    >>> lease_limit(["accepted", "accepted", "expired"], most=64)
    2
    """
    if sum(standing in _LOST for standing in history) > MAX_LOST:
        return 1
    limit = 1
    for standing in history:
        if standing == Standing.ACCEPTED:
            limit = min(2 * limit, most)
        elif standing == Standing.EXPIRED:
            limit = max(limit // 2, 1)
    return limit


def lease_history(session: Session, node: str) -> list[str]:
    """Standings of the node's last `HISTORY` leases, oldest first."""
    newest_first = (
        select(TaskRow.standing).where(TaskRow.node == node).order_by(TaskRow.log_index.desc()).limit(HISTORY)
    )
    return list(session.scalars(newest_first))[::-1]
