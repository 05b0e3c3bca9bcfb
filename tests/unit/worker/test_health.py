"""A worker's health and metrics, as a supervisor and Prometheus ask for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from protocol.errors import ConfigError
from tests.unit.worker.conftest import StillClock
from worker.activity import Activity
from worker.config import WorkerConfig
from worker.health import HealthServer, health_of
from worker.metrics import METRICS, ROLE, WorkerMetrics
from worker.status import NodeStatus

DOWN = {"obstacle": "the coordinator doesn't answer", "why": "refused", "todo": "start it"}


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def activity(clock: StillClock) -> Activity:
    return Activity(clock, "0.1.0")


@pytest.fixture
def metrics(activity: Activity, tmp_path: Path) -> WorkerMetrics:
    return WorkerMetrics(activity, tmp_path, lambda: None, lambda: Counter({"disk_short": 1}))


@pytest.fixture
def server(activity: Activity, metrics: WorkerMetrics) -> Iterator[HealthServer]:
    with HealthServer("127.0.0.1:0", activity, metrics, stall_seconds=900) as found:
        yield found


def test_who_moves_or_says_what_it_waits_for_is_healthy(activity: Activity, clock: StillClock) -> None:
    assert health_of(activity.state(), 900).status == "ok"
    activity.observe("waiting", DOWN)
    clock.time += 800
    activity.observe("waiting", DOWN)
    clock.time += 200
    found = health_of(activity.state(), 900)
    assert (found.status, found.http_status, found.why) == ("waiting", 200, "")
    assert found.waiting[0].obstacle == DOWN["obstacle"]


def test_who_neither_moves_nor_waits_is_stuck(activity: Activity, clock: StillClock) -> None:
    activity.observe("task.leased", {})
    clock.time += 901
    found = health_of(activity.state(), 900)
    assert (found.status, found.http_status) == ("stuck", 503) and "901 s" in found.why
    activity.observe("task.generated", {"num_units": 1})
    assert health_of(activity.state(), 900).http_status == 200


def test_who_has_ended_is_not_healthy(activity: Activity) -> None:
    activity.observe("worker.stopped", {})
    assert health_of(activity.state(), 900).http_status == 503


def test_health_is_served(server: HealthServer, activity: Activity, clock: StillClock) -> None:
    url = f"http://127.0.0.1:{server.port}"
    well = httpx.get(f"{url}/healthz")
    assert (well.status_code, well.json()["status"]) == (200, "ok")
    clock.time += 1000
    ill = httpx.get(f"{url}/healthz")
    assert (ill.status_code, ill.json()["status"]) == (503, "stuck") and "stall_seconds" in ill.json()["why"]
    assert httpx.get(f"{url}/nothing").status_code == 404


def test_metrics_are_those_of_the_table(server: HealthServer, activity: Activity) -> None:
    activity.observe("worker.started", {"node": "0x" + "11" * 20, "pool_id": 3})
    activity.observe("task.generated", {"num_units": 70})
    activity.observe("submission.refused", {"reason": "duplicate"})
    activity.observe("waiting", DOWN)
    text = httpx.get(f"http://127.0.0.1:{server.port}/metrics").text
    found = {sample.name: sample for family in text_string_to_metric_families(text) for sample in family.samples}
    assert set(found) <= {spec.full_name(ROLE) for spec in METRICS}
    assert found["proofpool_worker_tokens_total"].value == 70
    assert found["proofpool_worker_submissions_refused_total"].labels == {"reason": "duplicate"}
    assert found["proofpool_worker_current_wait_seconds"].labels == {"obstacle": DOWN["obstacle"]}
    assert found["proofpool_worker_incidents_open"].labels == {"kind": "disk_short"}
    assert found["proofpool_worker_disk_free_bytes"].value > 0
    assert found["proofpool_worker_info"].labels["pool_id"] == "3"


def test_what_the_last_look_found_is_among_them(
    activity: Activity, tmp_path: Path, make_status: Callable[..., NodeStatus]
) -> None:
    status = make_status(earned_wei=7, lag=2, allotment_wei=5)
    metrics = WorkerMetrics(activity, tmp_path, lambda: status, Counter)
    samples = {(s.name, *s.labels.values()): s.value for family in metrics.collect() for s in family.samples}
    assert samples["proofpool_worker_credits_wei", "earned"] == 7
    assert samples["proofpool_worker_weights_lag_versions",] == 2
    assert samples["proofpool_worker_allotment_wei", "allotted"] == 5


def test_an_address_that_is_taken_is_refused(server: HealthServer, activity: Activity, metrics: WorkerMetrics) -> None:
    with pytest.raises(ConfigError, match="can't be used"):
        HealthServer(f"127.0.0.1:{server.port}", activity, metrics, 900)


def test_metrics_are_off_unless_asked_for(make_config: Callable[..., WorkerConfig]) -> None:
    assert make_config().metrics_address is None


@pytest.mark.parametrize("off", [-3600.0, 3600.0])
def test_who_sets_the_clock_makes_nobody_stuck_or_well(off: float) -> None:
    wall, pace = StillClock(), StillClock()
    activity = Activity(wall, "0.1.0", pace)
    activity.observe("submission.received", {"submission_id": "0x01"})
    wall.time += off
    assert health_of(activity.state(), 900).idle_seconds == 0
    for clock in (wall, pace):
        clock.time += 901
    state = activity.state()
    assert health_of(state, 900).status == "stuck"
    assert state.written_time == wall.time and state.last_submission_time == wall.time - 901
    activity.observe("waiting", DOWN)
    wall.time -= off
    (obstacle,) = activity.state().waiting
    assert obstacle.since_time == obstacle.told_time == wall.time
