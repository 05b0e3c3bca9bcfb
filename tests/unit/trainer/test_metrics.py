"""What Prometheus and supervisors see of a trainer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from protocol.errors import ConfigError
from tests.unit.trainer.set_clock import SetClock
from trainer.config import TrainerConfig
from trainer.evaluation import PassRates
from trainer.learner import Learner
from trainer.metrics import METRICS, ROLE, TrainerMetrics, health_of
from trainer.metrics_file import MetricsFile
from trainer.peak import Peak
from trainer.process import serving
from trainer.reporting import Reporting
from trainer.samples import TrainingBatch
from trainer.stopwatch import Phase, Stopwatch

Samples = dict[tuple[str, ...], float]


@pytest.fixture
def clock() -> SetClock:
    return SetClock(1000.0)


@pytest.fixture
def make_reporting(tmp_path: Path, clock: SetClock) -> Callable[[], Reporting]:
    """A process over the same folder; a step has 1e6 operations of 2e6 a second."""

    def make() -> Reporting:
        metrics = MetricsFile(tmp_path / "metrics.jsonl")
        return Reporting(metrics, clock, Stopwatch(clock), flops_of=lambda _: 1e6, peak=Peak(2e6))

    return make


@pytest.fixture
def take_step(make_learner: Callable[..., Learner], batch: TrainingBatch, clock: SetClock) -> Callable[..., None]:
    def take(reporting: Reporting, learn: float = 4.0, wait: float = 1.0) -> None:
        with reporting.stopwatch.phase(Phase.BATCH):
            clock.time += wait
        with reporting.stopwatch.phase(Phase.LEARNING):
            figures = make_learner().learn(batch, 2)
            clock.time += learn
        reporting.step(3, batch, figures, 0.0, lambda: {"consumed": 2, "stale": 5})

    return take


def samples_of(reporting: Reporting) -> Samples:
    collected = TrainerMetrics(reporting, 7).collect()
    return {
        (s.name.removeprefix("proofpool_trainer_"), *s.labels.values()): s.value for f in collected for s in f.samples
    }


def test_a_steps_figures_waits_and_speed_are_among_them(
    make_reporting: Callable[[], Reporting], take_step: Callable[..., None], batch: TrainingBatch
) -> None:
    reporting = make_reporting()
    take_step(reporting)
    found, line = samples_of(reporting), reporting.newest
    num_tokens = sum(batch.num_outputs)
    assert found["policy_version",] == 3 and found["steps_total",] == 1 and found["tokens_total",] == num_tokens
    assert found["rollouts_total", "2"] == 8 and found["policy_lag_versions", "mean"] == 2
    assert found["tokens_per_second",] == num_tokens / 4
    assert (found["flops_per_second",], found["mfu_share",]) == (250_000, 0.125)
    assert (found["bottleneck", "training"], found["bottleneck", "batch"]) == (1, 0)
    assert (found["step_seconds", "training"], found["step_seconds", "batch"]) == (4, 1)
    assert found["phase_seconds_total", "waiting_for_batch"] == 1
    assert found["unused_groups", "stale"] == 5 and ("unused_groups", "consumed") not in found
    assert found["kl_nats", "worker_bounded"] == line["kl_to_worker_bounded"]
    assert found["worker_ratio", "0.01"] == line["worker_ratio_p01"]
    assert found["ratio", "0.99"] == line["ratio_p99"] and found["kl_nats", "worker"] == line["kl_to_worker"]
    assert ("kl_nats", "reference") not in found  # the recipe keeps none


def test_before_the_first_step_there_are_no_figures_and_after_a_restart_the_last_ones(
    make_reporting: Callable[[], Reporting], take_step: Callable[..., None]
) -> None:
    first = make_reporting()
    assert "entropy_nats" not in {name for name, *_ in samples_of(first)}
    take_step(first)
    first.evaluated(2, PassRates(16, 4, 0.25, 0.5), 3.0)
    found = samples_of(make_reporting())
    assert found["steps_total",] == 0 and found["policy_version",] == 3
    assert found["entropy_nats",] == first.newest["entropy"]
    assert found["held_back_policy_version",] == 2
    assert (found["held_back_share", "average"], found["held_back_share", "at_least_once"]) == (0.25, 0.5)


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., TrainerConfig]:
    def make(**settings: object) -> TrainerConfig:
        folders = {name: str(tmp_path) for name in ("keystore", "base_model", "data_dir", "origin_dir")}
        urls = {"coordinator_url": "http://127.0.0.1:1", "chain_url": "http://127.0.0.1:1"}
        return TrainerConfig.model_validate(urls | folders | settings)

    return make


def test_they_are_served_with_the_names_of_the_table(
    make_reporting: Callable[[], Reporting], make_config: Callable[..., TrainerConfig], take_step: Callable[..., None]
) -> None:
    reporting = make_reporting()
    take_step(reporting)
    with serving(make_config(metrics_address=f"127.0.0.1:{(port := free_port())}"), reporting):
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        health = httpx.get(f"http://127.0.0.1:{port}/healthz")
        with (
            pytest.raises(ConfigError, match="can't be used"),
            serving(make_config(metrics_address=f"127.0.0.1:{port}"), reporting),
        ):
            pass
    names = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    assert names <= {spec.full_name(ROLE) for spec in METRICS} and "proofpool_trainer_mfu_share" in names
    assert (health.status_code, health.json()["status"]) == (200, "ok")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_metrics_are_off_unless_asked_for(
    make_reporting: Callable[[], Reporting], make_config: Callable[..., TrainerConfig]
) -> None:
    config = make_config()
    assert config.metrics_address is None
    threads = threading.active_count()
    with serving(config, make_reporting()):
        assert threading.active_count() == threads


def test_who_computes_too_long_is_stuck_and_who_waits_never(
    make_reporting: Callable[[], Reporting], clock: SetClock
) -> None:
    reporting = make_reporting()
    with reporting.stopwatch.phase(Phase.LEARNING):
        clock.time += 60
        assert health_of(reporting, 60).http_status == 200
        clock.time += 1
        found = health_of(reporting, 60)
        assert (found.status, found.http_status) == ("stuck", 503) and "learning for 61 s" in found.why
    with reporting.stopwatch.phase(Phase.BATCH):
        clock.time += 10_000
        found = health_of(reporting, 60)
        assert (found.status, found.http_status, found.why) == ("waiting", 200, "")
