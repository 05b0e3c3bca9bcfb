"""A relay: a forwarder that fills a folder, the server of that folder, and what others see of both.

In: where to listen, whom to pull from. Out: a process that ends on a signal; health and metrics as other roles have.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Literal

from prometheus_client.core import Metric
from pydantic import BaseModel, ConfigDict

from protocol.health_server import HealthServer
from protocol.metrics import MetricSpec, families
from protocol.shardcast.file_server import FileServer
from protocol.shardcast.forwarder import Forwarder

ROLE = "relay"
METRICS = (
    MetricSpec("bytes", "counter", "Bytes of shards and manifests since the start: in, out.", ("direction",)),
    MetricSpec("requests", "counter", "Requests answered since the start."),
    MetricSpec("connections_refused", "counter", "Connections over the limits since the start."),
    MetricSpec("connections", "gauge", "Connections open now."),
    MetricSpec("peer_bytes", "counter", "Bytes of shards from peers since the start, part of those that came in."),
    MetricSpec("upstream_failures", "counter", "Answers of upstreams and peers that failed, since the start."),
    MetricSpec("upstream_lies", "counter", "Shards and manifests with another hash than promised, since the start."),
    MetricSpec("policy_version", "gauge", "Newest policy version that is here completely."),
)


class RelayHealth(BaseModel):
    """What /healthz answers. `why` says what stands in the way of pulling; what is here is served all the same."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    status: Literal["ok", "waiting"]
    why: str
    policy_version: int | None

    @property
    def http_status(self) -> int:
        return 200 if self.status == "ok" else 503


class RelayMetrics:
    """A Prometheus collector."""

    def __init__(self, server: FileServer, forwarder: Forwarder) -> None:
        self._server, self._forwarder = server, forwarder

    def collect(self) -> Iterator[Metric]:
        served, upstreams = self._server.served, self._forwarder.relays.all
        version = self._forwarder.policy_version
        yield from families(
            ROLE,
            METRICS,
            {
                "bytes": {("in",): sum(one.num_bytes for one in upstreams), ("out",): served.num_bytes},
                "requests": {(): served.num_requests},
                "connections_refused": {(): served.num_refused},
                "connections": {(): self._server.visitors.num_connections},
                "peer_bytes": {(): sum(one.num_bytes for one in self._forwarder.peers)},
                "upstream_failures": {(): sum(one.num_failures for one in upstreams)},
                "upstream_lies": {(): sum(len(one.lies) for one in upstreams)},
                "policy_version": {} if version is None else {(): version},
            },
        )


def health_of(forwarder: Forwarder) -> RelayHealth:
    """Waiting is who couldn't pull what there is."""
    status: Literal["ok", "waiting"] = "waiting" if forwarder.trouble else "ok"
    return RelayHealth(status=status, why=forwarder.trouble, policy_version=forwarder.policy_version)


def run_relay(
    server: FileServer, forwarder: Forwarder, stop: threading.Event, metrics_address: str | None = None
) -> None:
    """Serve and pull until `stop` is set. Raises ConfigError for a bad address of the metrics."""
    with ExitStack() as stack:
        if metrics_address is not None:
            metrics = RelayMetrics(server, forwarder)
            stack.enter_context(HealthServer(metrics_address, lambda: health_of(forwarder), metrics))
        stack.enter_context(server)
        forwarder.run(stop)
