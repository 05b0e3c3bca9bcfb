"""/v1/log: leaves of the audit log, and proofs that lead from them to anchored heads."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from coordinator import audit
from coordinator.api.dependencies import MAX_PAGE, CoordinatorOf
from protocol.api import ConsistencyProof, InclusionProof, LogEntry
from protocol.wire import UInt64

router = APIRouter(tags=["log"])


@router.get("/log/entries")
def list_entries(
    coordinator: CoordinatorOf,
    start: UInt64 = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = MAX_PAGE,
) -> list[LogEntry]:
    """Leaves from number `start` on, in order, anchored or not."""
    with coordinator.reading() as session:
        return audit.log_entries(session, start, limit)


@router.get("/log/inclusion/{index}")
def get_inclusion(coordinator: CoordinatorOf, index: UInt64) -> InclusionProof:
    """That a leaf is under the root of the first epoch on chain that holds it."""
    with coordinator.reading() as session:
        return audit.inclusion(session, index)


@router.get("/log/consistency")
def get_consistency(coordinator: CoordinatorOf, old_epoch: UInt64, new_epoch: UInt64) -> ConsistencyProof:
    """That the log at one epoch is a prefix of the log at a later one."""
    with coordinator.reading() as session:
        return audit.consistency(session, old_epoch, new_epoch)
