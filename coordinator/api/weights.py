"""/v1/weights: the trainer announces a policy version; workers ask for one; who has the newest ones."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, status

from coordinator import spread, versions
from coordinator.api.dependencies import CoordinatorOf
from protocol.api import VersionSpread, WeightsView
from protocol.wire import Signed, UInt64, WeightsRelease

router = APIRouter(tags=["weights"])


@router.post("/weights", status_code=status.HTTP_204_NO_CONTENT)
def announce_weights(coordinator: CoordinatorOf, release: Signed[WeightsRelease]) -> None:
    """Announce a version whose manifest is on chain; the release itself carries the trainer's signature."""
    versions.announce_weights(coordinator, release)


@router.get("/weights")
def list_weights(coordinator: CoordinatorOf, limit: Annotated[int, Query(ge=1, le=100)] = 5) -> list[VersionSpread]:
    """How the newest versions spread: when each was announced, and which nodes have it since when; newest first."""
    with coordinator.reading() as session:
        return spread.spread(session, coordinator.config.pool_id, limit)


@router.get("/weights/{policy_version}")
def get_weights(coordinator: CoordinatorOf, policy_version: UInt64) -> WeightsView:
    """The trainer's signed release, and the beacon once it is sealed."""
    with coordinator.reading() as session:
        return versions.weights_view(session, coordinator.config.pool_id, policy_version)
