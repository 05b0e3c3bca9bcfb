"""/healthz and /metrics of a process: for supervisors, orchestrators and Prometheus.

    GET /healthz   a JSON document; status 200 while all is well, 503 with the reason otherwise
    GET /metrics   Prometheus text

In: how the process is, and its collector, asked at each request. Out: an HTTP server in a thread of its own, on
`metrics_address`; plain and without a password, so that address is the loopback unless it is set otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, Self

from prometheus_client import CONTENT_TYPE_LATEST

from protocol.errors import ConfigError
from protocol.listen_address import family_of, host_and_port
from protocol.metrics import exposition

READ_SECONDS = 10.0
"""A client that asks slower than this is let go."""


class HealthDocument(Protocol):
    """What /healthz answers: a pydantic model that knows its status."""

    @property
    def http_status(self) -> int:
        """200, or 503 where something is to be done."""
        ...

    def model_dump_json(self) -> str:
        """The document."""
        ...


class HealthServer:
    """Example: `with HealthServer("127.0.0.1:9464", health, collector): …`."""

    def __init__(self, address: str, health: Callable[[], HealthDocument], collector: object) -> None:
        """Raises ConfigError where the address is none, or taken."""
        host, port = host_and_port(address)
        try:
            self._server = _Server(host, port, _answers(health, collector))
        except OSError as error:
            todo = "set `metrics_address` to a free one; each process of a machine needs its own"
            raise ConfigError("the metrics' address can't be used", f"{address}: {error.strerror}", todo) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, answers: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = family_of(host)
        super().__init__((host, port), answers)


def _answers(health: Callable[[], HealthDocument], collector: object) -> type[BaseHTTPRequestHandler]:
    class Answers(BaseHTTPRequestHandler):
        timeout = READ_SECONDS
        server_version, sys_version = "proofpool", ""

        def do_GET(self) -> None:
            if self.path == "/healthz":
                document = health()
                self._answer(document.http_status, "application/json", document.model_dump_json().encode())
            elif self.path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, exposition(collector))
            else:
                self._answer(404, "text/plain; charset=utf-8", b"there are /healthz and /metrics\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """A scrape is no event."""

    return Answers
