"""What runs beside a worker's loop for whoever looks after it: state file, health and metrics, alerts.

In: `WorkerConfig`, the process's `Activity`. Out: a context that holds while the worker runs. The state file is always
written, and the lookout always looks: a first `proofpool worker status` knows what was before it. The server runs where
`metrics_address` is set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx

from protocol.clock import Clock
from protocol.patience import impatient
from protocol.tls import trusted_for
from worker.activity import Activity
from worker.alerts import Lookout, webhook_of
from worker.config import WorkerConfig
from worker.health import HealthServer
from worker.metrics import WorkerMetrics
from worker.state_file import StateFile
from worker.status import look


@contextmanager
def surrounded(config: WorkerConfig, activity: Activity, clock: Clock, pace: Clock) -> Iterator[None]:
    """`clock` dates, `pace` measures what goes by.

    Raises ConfigError where another worker has the folder or the address, or the webhook is none."""
    with ExitStack() as stack:
        webhook = webhook_of(config, os.environ)
        stack.enter_context(StateFile(config.data_dir, activity, clock))
        http = stack.enter_context(impatient(httpx.Client(verify=trusted_for(webhook or ""))))
        lookout = stack.enter_context(Lookout(config, lambda: look(config, clock), http, webhook, clock, pace))
        if config.metrics_address:
            metrics = WorkerMetrics(activity, config.data_dir, lambda: lookout.status, lookout.num_open)
            address, stall_seconds = config.metrics_address, config.stall_seconds
            stack.enter_context(HealthServer(address, activity, metrics, stall_seconds))
        yield
