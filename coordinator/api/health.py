"""/v1/status, /v1/healthz, /v1/readyz, /v1/metrics: for operators, load balancers and Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Response, status
from prometheus_client import CONTENT_TYPE_LATEST

from coordinator.api.dependencies import CoordinatorOf
from coordinator.status import StatusMetrics, check_ready
from coordinator.status import status as coordinator_status
from protocol.api import Status
from protocol.metrics import exposition

router = APIRouter(tags=["health"])


@router.get("/status")
def get_status(coordinator: CoordinatorOf) -> Status:
    """How fresh this coordinator is, and what waits."""
    with coordinator.reading() as session:
        return coordinator_status(coordinator, session)


@router.get("/healthz", status_code=status.HTTP_204_NO_CONTENT)
def healthz() -> None:
    """The process answers."""


@router.get("/readyz", status_code=status.HTTP_204_NO_CONTENT)
def readyz(coordinator: CoordinatorOf) -> None:
    """The pool is indexed and the chain isn't far ahead."""
    with coordinator.reading() as session:
        check_ready(coordinator, session)


@router.get("/metrics", response_class=Response)
def get_metrics(coordinator: CoordinatorOf) -> Response:
    """Prometheus text."""
    return Response(exposition(StatusMetrics(coordinator)), media_type=CONTENT_TYPE_LATEST)
