"""/healthz of a worker: 200 while it moves, or waits for what it can name; 503 with the reason otherwise.

In: the process's state. Out: `Health`, and the server of it and of /metrics (`protocol/health_server.py`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

import protocol.health_server
from worker.activity import Activity, Obstacle, WorkerState
from worker.metrics import WorkerMetrics


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


class HealthServer(protocol.health_server.HealthServer):
    """Example: `with HealthServer("127.0.0.1:9464", activity, metrics, stall_seconds=900): …`."""

    def __init__(self, address: str, activity: Activity, metrics: WorkerMetrics, stall_seconds: float) -> None:
        """Raises ConfigError where the address is none, or taken."""
        super().__init__(address, lambda: health_of(activity.state(), stall_seconds), metrics)
