"""A relay is a directory behind a web server; this is the built-in one.

In: a root that `origin.publish` writes into. Out: `GET /versions/N/…` with ranges and ETags, and
nothing outside `versions/`. Run: `proofpool shardcast serve DIR`.
"""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles


def create_app(root: Path) -> Starlette:
    """The ASGI application over `root`."""
    versions = root / "versions"
    versions.mkdir(parents=True, exist_ok=True)
    return Starlette(
        routes=[
            Route("/healthz", lambda request: PlainTextResponse("ok\n")),
            Mount("/versions", StaticFiles(directory=versions)),
        ]
    )
