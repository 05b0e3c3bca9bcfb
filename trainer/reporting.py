"""What a step says of itself: a line of metrics.jsonl, a line of the log, and the tracker's curves.

In: a step's figures, its times, what it computed, and what became of the pool's accepted groups. Out: `Line`s, the
newest of which metrics are made of. Counts of groups are since the line before, also over a restart.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict

from protocol.clock import Clock
from protocol.errors import Rejected, Unreachable
from protocol.telemetry import get_logger
from trainer.evaluation import PassRates
from trainer.figures import StepFigures
from trainer.metrics_file import GROUPS_BY_USE, LEFT_UNUSED, Line, MetricsFile, finite
from trainer.peak import Peak
from trainer.run_status import status_of
from trainer.samples import TrainingBatch
from trainer.stopwatch import Stopwatch, bottleneck
from trainer.trackers import NO_TRACKER, Tracker


class Reporting:
    """One run's lines. `flops_of` gives a batch's FLOPs, `peak` what all devices can do in a second."""

    def __init__(
        self,
        metrics: MetricsFile,
        clock: Clock,
        stopwatch: Stopwatch,
        tracker: Tracker = NO_TRACKER,
        flops_of: Callable[[TrainingBatch], float] | None = None,
        peak: Peak | None = None,
    ) -> None:
        self.metrics = metrics
        self.clock = clock
        self.stopwatch = stopwatch
        self.tracker = tracker
        self.flops_of = flops_of
        self.peak = peak
        self._lock = threading.Lock()
        self.num_steps = self.num_tokens = 0
        self.num_rollouts_by_lag: Counter[str] = Counter()
        self.newest: Line = {}
        """Every column's newest value, those of before a restart included."""
        self.policy_version: int | None = None
        self.held_back_version: int | None = None
        for line in metrics.lines():
            self._take_in(line)

    def step(
        self,
        policy_version: int,
        batch: TrainingBatch,
        figures: StepFigures,
        unpublished_seconds: float,
        groups_by_use: Callable[[], dict[str, int]],
    ) -> None:
        """The end of the step that made `policy_version`."""
        flops = None if self.flops_of is None else self.flops_of(batch)
        unused = self._unused(groups_by_use)
        times = self.stopwatch.lap(unpublished_seconds if figures.max_policy_lag == 0 else 0.0)
        line: Line = {"step": policy_version, "time": self.clock.now()}
        causes = times.by_bottleneck
        line |= asdict(times) | asdict(figures)
        line |= {"bottleneck": bottleneck(causes).value}
        line |= {"seconds_by_cause": {cause.value: seconds for cause, seconds in causes.items()}}
        line |= self._speed(figures, flops, times.learn_seconds) | unused
        line = finite(line)
        self._write(line)
        self.num_steps += 1
        self.num_tokens += figures.num_tokens
        self.num_rollouts_by_lag.update(figures.policy_lag_counts)
        get_logger().info("step.done", **line)

    def evaluated(self, policy_version: int, rates: PassRates, seconds: float) -> None:
        """Held-back problems of a version are through, maybe some steps later."""
        line: Line = {
            "step": policy_version,
            "time": self.clock.now(),
            "held_back_average": rates.average,
            "held_back_at_least_once": rates.at_least_once,
            "num_held_back": rates.num_problems,
            "num_samples": rates.num_samples,
            "evaluation_seconds": seconds,
        }
        self._write(line)
        get_logger().info("evaluation.done", **line)

    def close(self) -> None:
        """The end of the process: what all steps of the run came to, in one line of the log."""
        self.tracker.close()
        if lines := self.metrics.lines():
            status = status_of(self.metrics.path.parent.name, lines)
            get_logger().info("trainer.ended", **status.model_dump(mode="json", exclude={"newest", "schema_version"}))

    def _write(self, line: Line) -> None:
        with self._lock:  # steps and evaluations end in threads of their own
            self.metrics.append(line)
            self._take_in(line)
            self.tracker.log(int(line["step"]), scalars(line))

    def _take_in(self, line: Line) -> None:
        self.newest = self.newest | line
        if "held_back_average" in line:
            self.held_back_version = line["step"]
        else:
            self.policy_version = line["step"]

    def _speed(self, figures: StepFigures, flops: float | None, seconds: float) -> Line:
        """Of learning alone: waits are told of by themselves."""
        if seconds <= 0:
            return {"tokens_per_second": None, "flops_per_second": None, "mfu": None}
        flops_per_second = None if flops is None else flops / seconds
        return {
            "tokens_per_second": figures.num_tokens / seconds,
            "flops_per_second": flops_per_second,
            "mfu": None if flops_per_second is None or self.peak is None else self.peak.share(flops_per_second),
            "peak_flops": None if self.peak is None else self.peak.flops,
        }

    def _unused(self, groups_by_use: Callable[[], dict[str, int]]) -> Line:
        """Counts since the line before; nothing while the coordinator is away, and the next line has them all."""
        before = self.newest.get(GROUPS_BY_USE) or {}
        try:
            now = groups_by_use()
        except (Unreachable, Rejected) as error:
            get_logger().warning("groups.uncounted", why=str(error))
            return {}
        since = {column: max(0, now.get(use, 0) - before.get(use, 0)) for use, column in LEFT_UNUSED.items()}
        return since | {GROUPS_BY_USE: now}


def scalars(line: Mapping[str, object]) -> dict[str, float]:
    """The numbers of a line, for whoever draws them; a table's are `TABLE/KEY`."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, Mapping):
            found |= {f"{name}/{key}": float(one) for key, one in value.items()}
        elif isinstance(value, int | float) and not isinstance(value, bool) and name not in ("step", "time"):
            found[name] = float(value)
    return found
