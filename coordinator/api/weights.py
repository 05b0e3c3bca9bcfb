"""/v1/weights: the trainer announces a policy version; workers ask for one."""

from __future__ import annotations

from fastapi import APIRouter, status

from coordinator import versions
from coordinator.api.dependencies import CoordinatorOf
from protocol.api import WeightsView
from protocol.wire import Signed, UInt64, WeightsRelease

router = APIRouter(tags=["weights"])


@router.post("/weights", status_code=status.HTTP_204_NO_CONTENT)
def announce_weights(coordinator: CoordinatorOf, release: Signed[WeightsRelease]) -> None:
    """Announce a version whose manifest is on chain; the release itself carries the trainer's signature."""
    versions.announce_weights(coordinator, release)


@router.get("/weights/{policy_version}")
def get_weights(coordinator: CoordinatorOf, policy_version: UInt64) -> WeightsView:
    """The trainer's signed release, and the beacon once it is sealed."""
    with coordinator.reading() as session:
        return versions.weights_view(session, coordinator.config.pool_id, policy_version)
