"""The HTTP server of a coordinator: `/v1`, one router a noun.

In: a `Coordinator`. Out: the ASGI application; `openapi()` is what docs/openapi.json holds.
Layers from outside: unforeseen errors -> body limit -> problem documents -> router.
"""

from __future__ import annotations

from collections.abc import Collection

from fastapi import APIRouter, FastAPI

from coordinator.api import (
    batches,
    checkpoints,
    earnings,
    epochs,
    health,
    log,
    pool,
    submissions,
    tasks,
    trace,
    verdicts,
    weights,
)
from coordinator.api.body import MAX_JSON_BYTES, BodyLimit
from coordinator.api.problems import ProblemBoundary, install_problems
from coordinator.context import Coordinator
from protocol.api import Problem
from protocol.wire import PROTOCOL_VERSION

ROUTERS: tuple[APIRouter, ...] = (
    pool.router,
    tasks.router,
    submissions.router,
    verdicts.router,
    batches.router,
    weights.router,
    earnings.router,
    epochs.router,
    checkpoints.router,
    log.router,
    trace.router,
    health.router,
)


def create_app(coordinator: Coordinator | None, hosts: Collection[str] = ()) -> FastAPI:
    """The application. `hosts`: names that signed requests may be made out to, besides the configured ones."""
    app = FastAPI(
        title="proofpool coordinator",
        version=f"v{PROTOCOL_VERSION}",
        description="Leases tasks, takes submissions, hands accepted batches to the trainer, keeps the log.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a signed request is for one path, and a redirect would name whatever host was asked
        responses={"default": {"model": Problem, "description": "refused, with a RejectReason as `code`"}},
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.coordinator = coordinator
    app.state.hosts = frozenset(hosts) | frozenset(coordinator.config.public_hosts if coordinator else ())
    for router in ROUTERS:
        app.include_router(router, prefix=f"/v{PROTOCOL_VERSION}")
    install_problems(app)
    max_upload_bytes = coordinator.config.max_upload_bytes if coordinator else MAX_JSON_BYTES
    most_held_bytes = coordinator.config.max_held_bytes if coordinator else MAX_JSON_BYTES
    app.add_middleware(
        BodyLimit,
        limit=lambda method: max_upload_bytes if method == "PUT" else MAX_JSON_BYTES,
        most_held_bytes=most_held_bytes,
    )
    app.add_middleware(ProblemBoundary)
    return app
