"""Who may work: a node that a provider has authorised, with enough stake bound to it.

In: the mirrors of Registry. Out: the node's provider, or `not_registered` or `understaked`.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from coordinator.db.chain import Allotment, Node, Pool
from protocol.errors import Rejected
from protocol.reasons import RejectReason


def provider_of(session: Session, pool: Pool, node: str) -> str:
    """The provider of a node that may work in this pool. Raises Rejected for any other node."""
    row = session.get(Node, node)
    if row is None or row.removed:
        raise Rejected(RejectReason.NOT_REGISTERED, f"{node} is no provider's node")
    allotment = session.get(Allotment, (node, pool.pool_id))
    free_wei = allotment.amount_wei - allotment.held_wei if allotment else 0
    if free_wei < pool.min_allotment_wei:
        raise Rejected(
            RejectReason.UNDERSTAKED,
            "allotted to this node, less what open cases hold (base units)",
            value=str(free_wei),
            threshold=str(pool.min_allotment_wei),
        )
    return row.provider
