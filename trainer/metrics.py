"""`proofpool_trainer_*` and /healthz: what Prometheus and supervisors see of a trainer, put together when they ask.

In: the run's newest figures and the loop's stopwatch. Out: metric families, of which `METRICS` is the table that
docs/metrics.md is made of, and `TrainerHealth`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from prometheus_client.core import Metric
from pydantic import BaseModel, ConfigDict

from protocol.doctor import installed_version
from protocol.metrics import MetricSpec, Values, families
from trainer.metrics_file import GROUPS_BY_USE, LEFT_UNUSED, Line
from trainer.reporting import Reporting
from trainer.stopwatch import Bottleneck, Phase

ROLE = "trainer"
METRICS = (
    MetricSpec("info", "gauge", "1; what runs, for which pool.", ("version", "pool_id")),
    MetricSpec("start_time_seconds", "gauge", "When the process started, Unix time."),
    MetricSpec("policy_version", "gauge", "Newest that is saved."),
    MetricSpec("steps", "counter", "Steps taken since the start."),
    MetricSpec("tokens", "counter", "Tokens trained on since the start."),
    MetricSpec("rollouts", "counter", "Rollouts trained on since the start, by their lag in versions.", ("lag",)),
    MetricSpec("phase_seconds", "counter", "Seconds since the start, by what the loop was at.", ("phase",)),
    MetricSpec("current_phase_seconds", "gauge", "How long what the loop is at has lasted.", ("phase",)),
    MetricSpec("step_seconds", "gauge", "Of the newest step: waits and work, by what they were for.", ("cause",)),
    MetricSpec("bottleneck", "gauge", "1 for what held the newest step up longest, 0 for the others.", ("cause",)),
    MetricSpec("objective", "gauge", "What the newest step maximised; the loss is its negative."),
    MetricSpec("task_reward", "gauge", "Mean over the newest step's rollouts."),
    MetricSpec("length_penalty", "gauge", "Mean over the newest step's rollouts."),
    MetricSpec("entropy_nats", "gauge", "Of the policy, over trained tokens."),
    MetricSpec("kl_nats", "gauge", "To the weights before the step (old), the worker's, the reference's.", ("to",)),
    MetricSpec("worker_ratio", "gauge", "Quantiles of the start's probability over the worker's.", ("quantile",)),
    MetricSpec("clipped_share", "gauge", "Tokens whose gradient was clipped away, by edge.", ("edge",)),
    MetricSpec("ratio", "gauge", "Quantiles of the policy ratio over trained tokens.", ("quantile",)),
    MetricSpec("grad_norm", "gauge", "Before it is cut, the mean over optimizer steps."),
    MetricSpec("policy_lag_versions", "gauge", "Of the newest step's rollouts: min, mean, max.", ("which",)),
    MetricSpec("unused_groups", "gauge", "Accepted and not trained on since the pool began, by reason.", ("reason",)),
    MetricSpec("tokens_per_second", "gauge", "Trained tokens a second of learning."),
    MetricSpec("flops_per_second", "gauge", "Floating-point operations a second of learning."),
    MetricSpec("mfu_share", "gauge", "These, as a share of what the devices can do."),
    MetricSpec("held_back_share", "gauge", "Of held-back problems: avg@k (average) and pass@k.", ("which",)),
    MetricSpec("held_back_policy_version", "gauge", "The version that was evaluated last."),
)
PLAIN = {
    "objective": "objective",
    "task_reward": "mean_task_reward",
    "length_penalty": "mean_length_penalty",
    "entropy_nats": "entropy",
    "grad_norm": "grad_norm",
    "tokens_per_second": "tokens_per_second",
    "flops_per_second": "flops_per_second",
    "mfu_share": "mfu",
}
"""Metric to column."""
LABELLED = {
    "kl_nats": {
        "old": "kl_to_old",
        "worker": "kl_to_worker",
        "worker_bounded": "kl_to_worker_bounded",
        "reference": "kl_to_reference",
    },
    "worker_ratio": {"0.01": "worker_ratio_p01", "0.5": "worker_ratio_p50", "0.99": "worker_ratio_p99"},
    "clipped_share": {"high": "ratio_high_share", "low": "ratio_low_share", "delta": "ratio_delta_share"},
    "ratio": {"0.01": "ratio_p01", "0.5": "ratio_p50", "0.99": "ratio_p99"},
    "policy_lag_versions": {"min": "min_policy_lag", "mean": "mean_policy_lag", "max": "max_policy_lag"},
    "held_back_share": {"average": "held_back_average", "at_least_once": "held_back_at_least_once"},
}
"""Metric to its label's values, and the column of each."""


class TrainerMetrics:
    """A Prometheus collector."""

    def __init__(self, reporting: Reporting, pool_id: int) -> None:
        self._reporting = reporting
        self._pool_id = pool_id
        self._start_time = reporting.clock.now()

    def collect(self) -> Iterator[Metric]:
        identity = (installed_version("proofpool"), str(self._pool_id))
        values: dict[str, Values] = {"info": {identity: 1}, "start_time_seconds": {(): self._start_time}}
        yield from families(ROLE, METRICS, values | _of_process(self._reporting) | _of_line(self._reporting.newest))


class TrainerHealth(BaseModel):
    """What /healthz answers. `why` is empty where the status is `ok` or `waiting`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    status: Literal["ok", "waiting", "stuck"]
    why: str
    phase: Phase
    phase_seconds: float
    policy_version: int | None

    @property
    def http_status(self) -> int:
        return 503 if self.status == "stuck" else 200


def health_of(reporting: Reporting, stall_seconds: float) -> TrainerHealth:
    """Stuck is who computes for longer than `stall_seconds` at one phase; waits take as long as others do."""
    phase, seconds = reporting.stopwatch.current()
    is_stuck = not phase.is_wait and seconds > stall_seconds
    why = f"{phase.value} for {seconds:.0f} s, more than stall_seconds = {stall_seconds:.0f}" if is_stuck else ""
    return TrainerHealth(
        status="stuck" if is_stuck else "waiting" if phase.is_wait else "ok",
        why=why,
        phase=phase,
        phase_seconds=round(seconds, 1),
        policy_version=reporting.policy_version,
    )


def _of_process(reporting: Reporting) -> dict[str, Values]:
    phase, seconds = reporting.stopwatch.current()
    found: dict[str, Values] = {
        "steps": {(): reporting.num_steps},
        "tokens": {(): reporting.num_tokens},
        "rollouts": {(lag,): count for lag, count in sorted(reporting.num_rollouts_by_lag.items())},
        "phase_seconds": {(one.value,): spent for one, spent in reporting.stopwatch.totals().items()},
        "current_phase_seconds": {(phase.value,): seconds},
    }
    versions = {"policy_version": reporting.policy_version, "held_back_policy_version": reporting.held_back_version}
    return found | {name: {(): known} for name, known in versions.items() if known is not None}


def _of_line(line: Line) -> dict[str, Values]:
    found: dict[str, Values] = {name: {(): line[column]} for name, column in PLAIN.items() if _is_number(line, column)}
    for name, columns in LABELLED.items():
        found[name] = {(label,): line[column] for label, column in columns.items() if _is_number(line, column)}
    unused: Mapping[str, int] = line.get(GROUPS_BY_USE) or {}
    found["unused_groups"] = {(use,): count for use, count in unused.items() if use in LEFT_UNUSED}
    if "bottleneck" in line:
        found["bottleneck"] = {(cause.value,): float(cause == line["bottleneck"]) for cause in Bottleneck}
        found["step_seconds"] = {(cause,): spent for cause, spent in line["seconds_by_cause"].items()}
    return found


def _is_number(line: Line, column: str) -> bool:
    return isinstance(line.get(column), int | float)
