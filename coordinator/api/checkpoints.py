"""/v1/checkpoint: the log's size and root as its own key signed them, for whoever wants to remember them."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from coordinator import checkpoints
from coordinator.api.dependencies import CoordinatorOf
from protocol.wire import UInt64

router = APIRouter(tags=["log"])


@router.get("/checkpoint", response_class=PlainTextResponse)
def get_newest_checkpoint(coordinator: CoordinatorOf) -> str:
    """The newest signed note (C2SP tlog-checkpoint)."""
    with coordinator.reading() as session:
        return checkpoints.checkpoint(session)


@router.get("/checkpoints/{epoch}", response_class=PlainTextResponse)
def get_checkpoint(coordinator: CoordinatorOf, epoch: UInt64) -> str:
    """The signed note of one epoch."""
    with coordinator.reading() as session:
        return checkpoints.checkpoint(session, epoch)
