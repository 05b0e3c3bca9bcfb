"""/healthz and /metrics of a worker: for supervisors, orchestrators and Prometheus.

    GET /healthz   200 while the worker moves, or waits for what it can name; 503 with the reason otherwise
    GET /metrics   Prometheus text

In: the process's state. Out: an HTTP server in a thread of its own, on `metrics_address`; plain and without a password,
so that address is the loopback unless it is set otherwise.
"""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict

from protocol.errors import ConfigError
from protocol.metrics import exposition
from worker.activity import Activity, Obstacle, WorkerState
from worker.metrics import WorkerMetrics

READ_SECONDS = 10.0
"""A client that asks slower than this is let go."""


class Health(BaseModel):
    """What /healthz answers. `why` is empty where the status is `ok` or `waiting`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    status: Literal["ok", "waiting", "stuck", "stopped"]
    why: str
    phase: str
    idle_seconds: float
    waiting: tuple[Obstacle, ...]

    @property
    def http_status(self) -> int:
        return 200 if self.status in ("ok", "waiting") else 503


def health_of(state: WorkerState, stall_seconds: float) -> Health:
    """Stuck is who neither moved for `stall_seconds` nor says what is waited for."""
    idle = round(state.written_time - state.progress_time, 1)
    status: Literal["ok", "waiting", "stuck", "stopped"] = "waiting" if state.waiting else "ok"
    why = ""
    if state.phase == "stopped":
        status, why = "stopped", "the worker has ended"
    elif not state.waiting and idle > stall_seconds:
        status, why = "stuck", f"nothing has moved for {idle:.0f} s, more than stall_seconds = {stall_seconds:.0f}"
    return Health(status=status, why=why, phase=state.phase, idle_seconds=idle, waiting=state.waiting)


class HealthServer:
    """Example: `with HealthServer("127.0.0.1:9464", activity, metrics, stall_seconds=900): …`."""

    def __init__(self, address: str, activity: Activity, metrics: WorkerMetrics, stall_seconds: float) -> None:
        """Raises ConfigError where the address is none, or taken."""
        host, port = host_and_port(address)
        answers = _answers(activity, metrics, stall_seconds)
        try:
            self._server = ThreadingHTTPServer((host, port), answers)
        except OSError as error:
            todo = "set `metrics_address` to a free one; each worker of a machine needs its own"
            raise ConfigError("the metrics' address can't be used", f"{address}: {error.strerror}", todo) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> HealthServer:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def host_and_port(address: str) -> tuple[str, int]:
    """Raises ConfigError for what is no HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise ConfigError("that is no address to listen on", f"metrics_address {address!r}", "such as 127.0.0.1:9464")
    return host.strip("[]"), int(port)


def _answers(activity: Activity, metrics: WorkerMetrics, stall_seconds: float) -> type[BaseHTTPRequestHandler]:
    class Answers(BaseHTTPRequestHandler):
        timeout = READ_SECONDS
        server_version, sys_version = "proofpool", ""

        def do_GET(self) -> None:
            if self.path == "/healthz":
                health = health_of(activity.state(), stall_seconds)
                self._answer(health.http_status, "application/json", health.model_dump_json().encode())
            elif self.path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, exposition(metrics))
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
