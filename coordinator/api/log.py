"""/v1/log: leaves of the audit log, and proofs that lead from them to anchored heads."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from coordinator import audit
from coordinator.api.dependencies import MAX_PAGE, CoordinatorOf
from coordinator.api.files import link_next
from protocol.api import ConsistencyProof, InclusionProof, LogEntry
from protocol.wire import Hash32, UInt64

router = APIRouter(tags=["log"])


@router.get("/log/entries")
def list_entries(
    coordinator: CoordinatorOf,
    request: Request,
    response: Response,
    start: UInt64 = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = MAX_PAGE,
    subject: Hash32 | None = None,
    event_type: Annotated[str | None, Query(alias="type", max_length=100)] = None,
) -> list[LogEntry]:
    """Leaves from number `start` on, in order, anchored or not; of one `subject` or `type` where these are given."""
    with coordinator.reading() as session:
        entries = audit.log_entries(session, start, limit, subject, event_type)
    if len(entries) == limit:
        link_next(request, response, start=entries[-1].index + 1)
    return entries


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
