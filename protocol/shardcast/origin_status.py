"""What others see of an origin, or of any process that serves a folder of versions: health and metrics.

In: the server, and its folder. Out: what /healthz and /metrics answer, on an address of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from prometheus_client.core import Metric
from pydantic import BaseModel, ConfigDict

from protocol.metrics import MetricSpec, families
from protocol.shardcast.file_server import FileServer

ROLE = "origin"
METRICS = (
    MetricSpec("bytes", "counter", "Bytes of shards and manifests sent since the start."),
    MetricSpec("requests", "counter", "Requests answered since the start."),
    MetricSpec("connections_refused", "counter", "Connections over the limits since the start."),
    MetricSpec("connections", "gauge", "Connections open now."),
    MetricSpec("versions", "gauge", "Policy versions that are published here."),
    MetricSpec("policy_version", "gauge", "Newest policy version that is published here."),
)


class OriginHealth(BaseModel):
    """What /healthz answers while the process serves."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    status: Literal["ok"] = "ok"
    policy_version: int | None

    @property
    def http_status(self) -> int:
        return 200


class OriginMetrics:
    """A Prometheus collector."""

    def __init__(self, server: FileServer, root: Path) -> None:
        self._server, self._root = server, root

    def collect(self) -> Iterator[Metric]:
        versions, served = published_versions(self._root), self._server.served
        yield from families(
            ROLE,
            METRICS,
            {
                "bytes": {(): served.num_bytes},
                "requests": {(): served.num_requests},
                "connections_refused": {(): served.num_refused},
                "connections": {(): self._server.visitors.num_connections},
                "versions": {(): len(versions)},
                "policy_version": {(): versions[-1]} if versions else {},
            },
        )


def published_versions(root: Path) -> list[int]:
    """Those that have a manifest, in order."""
    found = (path.parent.name for path in (root / "versions").glob("*/manifest.json"))
    return sorted(int(name) for name in found if name.isdigit())


def health_of(root: Path) -> OriginHealth:
    return OriginHealth(policy_version=next(reversed(published_versions(root)), None))
