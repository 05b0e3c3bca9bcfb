"""`proofpool_worker_*`: what Prometheus scrapes of a worker, put together when it asks.

In: the process's own state, the data folder, the last look at coordinator and chain, open incidents. Out: metric
families; `METRICS` is the table that docs/metrics.md is made of.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prometheus_client.core import Metric

from protocol.metrics import MetricSpec, Values, families
from worker.activity import Activity, WorkerState
from worker.folder import contents
from worker.status import NodeStatus

ROLE = "worker"
METRICS = (
    MetricSpec("info", "gauge", "1; what runs, for which node in which pool.", ("version", "node", "pool_id")),
    MetricSpec("start_time_seconds", "gauge", "When the process started, Unix time."),
    MetricSpec("progress_time_seconds", "gauge", "When it last did something other than wait, Unix time."),
    MetricSpec("tasks", "counter", "Tasks since the start: leased, generated, expired, returned.", ("event",)),
    MetricSpec("submissions_received", "counter", "Submissions that the coordinator has taken in."),
    MetricSpec("submissions_refused", "counter", "Submissions refused at the door, by reason.", ("reason",)),
    MetricSpec("tokens", "counter", "Output tokens generated."),
    MetricSpec("tokens_per_second", "gauge", "Output tokens per second over the last ten minutes."),
    MetricSpec(
        "weights_version", "gauge", "Newest policy version: in the engine (loaded), on disk (here).", ("place",)
    ),
    MetricSpec(
        "weights_taken",
        "counter",
        "Policy versions that the engine took: whole (load), or by patches in place.",
        ("way",),
    ),
    MetricSpec("weights_lag_versions", "gauge", "Policy versions of the pool that aren't here yet."),
    MetricSpec("outbox_pending", "gauge", "Submissions on disk that wait for an answer."),
    MetricSpec("leases_open", "gauge", "Tasks that are leased and not handed in."),
    MetricSpec("disk_free_bytes", "gauge", "Free space under the data folder."),
    MetricSpec("current_wait_seconds", "gauge", "How long what is waited for now has lasted.", ("obstacle",)),
    MetricSpec("waiting_seconds", "counter", "Seconds waited since the start, by obstacle.", ("obstacle",)),
    MetricSpec("recent_submissions", "gauge", "The last ten by standing and reason.", ("standing", "reason")),
    MetricSpec("credits_wei", "gauge", "The provider's: earned, claimed, claimable, pending, withheld.", ("state",)),
    MetricSpec("allotment_wei", "gauge", "Stake behind this node in this pool, and the least of it.", ("which",)),
    MetricSpec("answered_time_seconds", "gauge", "When each last answered a look, Unix time.", ("who",)),
    MetricSpec("incidents_open", "gauge", "Incidents that an alert was sent of, and that aren't over.", ("kind",)),
)


class WorkerMetrics:
    """A Prometheus collector."""

    def __init__(
        self,
        activity: Activity,
        data_dir: Path,
        last_look: Callable[[], NodeStatus | None],
        incidents: Callable[[], Counter[str]],
    ) -> None:
        self._activity = activity
        self._data_dir = data_dir
        self._last_look = last_look
        self._incidents = incidents

    def collect(self) -> Iterator[Metric]:
        state, status = self._activity.state(), self._last_look()
        values = _of_process(state) | _of_folder(self._data_dir, state) | (_of_status(status) if status else {})
        values["incidents_open"] = {(kind,): number for kind, number in self._incidents().items()}
        yield from families(ROLE, METRICS, values)


def _of_process(state: WorkerState) -> dict[str, Values]:
    identity = (state.version, state.node or "", str(state.pool_id or ""))
    return {
        "info": {identity: 1},
        "start_time_seconds": {(): state.started_time},
        "progress_time_seconds": {(): state.progress_time},
        "weights_taken": {(way,): number for way, number in state.num_taken.items()},
        "tasks": {(event,): number for event, number in state.num_tasks.items()},
        "submissions_received": {(): state.num_received},
        "submissions_refused": _by_one(state.num_refused),
        "tokens": {(): state.num_tokens},
        "tokens_per_second": {(): state.tokens_per_second},
        "current_wait_seconds": {(one.obstacle,): state.written_time - one.since_time for one in state.waiting},
        "waiting_seconds": _by_one(state.waited_seconds),
    }


def _of_folder(data_dir: Path, state: WorkerState) -> dict[str, Values]:
    here = contents(data_dir)
    versions = {"loaded": state.loaded_version, "here": max(here.policy_versions, default=None)}
    return {
        "weights_version": {(place,): number for place, number in versions.items() if number is not None},
        "outbox_pending": {(): here.num_pending},
        "leases_open": {(): here.num_leases},
        "disk_free_bytes": {(): shutil.disk_usage(data_dir).free},
    }


def _of_status(status: NodeStatus) -> dict[str, Values]:
    rows = Counter((row.standing, row.reason or "") for row in status.recent)
    names = ("earned", "claimed", "claimable", "pending", "withheld")
    money = {name: getattr(status, f"{name}_wei") for name in names}
    stake = {"allotted": status.allotment_wei, "least": status.min_allotment_wei}
    answered = {"coordinator": status.as_of.coordinator, "chain": status.as_of.chain}
    found: dict[str, Values] = {
        "recent_submissions": {labels: float(number) for labels, number in rows.items()},
        "credits_wei": _known(money),
        "allotment_wei": _known(stake),
        "answered_time_seconds": _known(answered),
    }
    return found | ({"weights_lag_versions": {(): status.lag}} if status.lag is not None else {})


def _known(values: Mapping[str, float | None]) -> Values:
    return {(name,): value for name, value in values.items() if value is not None}


def _by_one(values: Mapping[str, float]) -> Values:
    return {(name,): value for name, value in values.items()}
