"""Servers behind real sockets, for commands and processes that take a URL."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from coordinator.api.app import create_app
from tests.integration.conftest import World


@contextmanager
def listening(make_app: Callable[[str], Any]) -> Iterator[str]:
    """The URL of what `make_app` makes for a host's name; the server ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(make_app(host), log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield f"http://{host}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def served(world: World) -> Iterator[str]:
    """The world's coordinator."""
    with listening(lambda host: create_app(world.coordinator, {host})) as url:
        yield url
