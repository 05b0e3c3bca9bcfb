"""A coordinator without sockets or chain, for targets that need one, and what it serves of an honest submission."""

from __future__ import annotations

import atexit
import io
import tempfile
from functools import cache
from pathlib import Path

import anyio.from_thread
import numpy as np

from coordinator.db.engine import open_engine
from coordinator.db.migrate import migrate
from protocol.telemetry import configure_logging
from tests.unit.coordinator.conftest import Site, StandingClock, make_site

__all__ = ["StandingClock", "honest_bundle", "honest_log", "portal", "site"]


@cache
def portal() -> anyio.from_thread.BlockingPortal:
    """Where ASGI apps run."""
    running = anyio.from_thread.start_blocking_portal()
    atexit.register(running.__exit__, None, None, None)
    return running.__enter__()


@cache
def site() -> Site:
    """One accepted submission, one that just came in, one open lease."""
    configure_logging("coordinator", "json", stream=io.StringIO())
    folder = tempfile.TemporaryDirectory(prefix="proofpool-fuzz-site-")
    path = Path(folder.name) / "empty.sqlite"
    engine = open_engine(f"sqlite:///{path}")
    migrate(engine)
    engine.dispose()
    made = make_site(Path(folder.name) / "site", path.read_bytes(), portal())
    made.rng = np.random.default_rng(0)
    made.accept()
    made.submit()
    made.lease()

    def close() -> None:
        made.coordinator.engine.dispose()
        folder.cleanup()

    atexit.register(close)
    return made


@cache
def honest_bundle() -> list[bytes]:
    newest, accepted = (view.submission_id for view in reversed(site().client().submissions()))
    return [site().client().bundle(one).model_dump_json().encode() for one in (accepted, newest)]


@cache
def honest_log() -> list[bytes]:
    with site().http() as http:
        return [http.get("/v1/log/entries").content]
