"""GET /v1/pool, GET /v1/rules/{rules_hash}: what a role needs before it can work."""

from __future__ import annotations

from fastapi import APIRouter

from coordinator.api.dependencies import CoordinatorOf
from coordinator.pool import pool_info
from coordinator.rules import rules_document
from protocol.api import PoolInfo
from protocol.rules import Rules
from protocol.wire import Hash32

router = APIRouter(tags=["pool"])


@router.get("/pool")
def get_pool(coordinator: CoordinatorOf) -> PoolInfo:
    """The pool's record, its contracts, and how new that is."""
    with coordinator.reading() as session:
        return pool_info(coordinator, session)


@router.get("/rules/{rules_hash}")
def get_rules(coordinator: CoordinatorOf, rules_hash: Hash32) -> Rules:
    """The rules document with this hash."""
    with coordinator.reading() as session:
        return rules_document(session, rules_hash)
