"""A world's coordinator behind a real socket, for commands that take a URL."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from coordinator.api.app import create_app
from tests.integration.conftest import World


@contextmanager
def served(world: World) -> Iterator[str]:
    """The URL; the server ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        app = create_app(world.coordinator, {host})
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield f"http://{host}"
        finally:
            server.should_exit = True
            thread.join()
