"""What a running worker does, told by its own log: one source for the state file, the metrics and /healthz.

In: each log line of the process (`protocol/telemetry.py`'s observers). Out: `WorkerState`: what it waits for and since
when, what it has done since it started, tokens per second.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from protocol.clock import Clock

WINDOW_SECONDS = 600.0
"""Over which tokens per second are averaged."""
FORGET_SECONDS = 900.0
"""An obstacle that nothing was said of for so long is gone: whoever waited for it gave up."""
MAX_LABELS = 32
"""Different obstacles that are counted apart; more are `other`."""
_DATES = ("last_submission_time",)

Phase = Literal["joining", "working", "stopping", "stopped"]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Obstacle(_Shape):
    """What is waited for. `told_time` is when the log last said so."""

    obstacle: str
    why: str
    todo: str
    since_time: float
    told_time: float


class WorkerState(_Shape):
    """A worker process. Times are Unix seconds of its machine, counts are since `started_time`.

    `progress_time`: when it last did something other than wait. `tokens_per_second` is over the last ten minutes.
    `waited_seconds` by obstacle, with what it waits for now.
    """

    schema_version: Literal[1] = 1
    pid: int
    version: str
    started_time: float
    written_time: float
    progress_time: float
    phase: Phase
    node: str | None
    pool_id: int | None
    loaded_version: int | None
    fetched_version: int | None
    num_taken: dict[Literal["load", "patches"], int]
    """Policy versions that the engine took, by the way."""
    waiting: tuple[Obstacle, ...]
    waited_seconds: dict[str, float]
    num_tasks: dict[Literal["leased", "generated", "expired", "returned"], int]
    num_received: int
    num_refused: dict[str, int]
    num_tokens: int
    tokens_per_second: float
    last_submission_id: str | None
    last_submission_time: float | None


class Activity:
    """Example: `configure_logging("worker", observers=[activity.observe])`, then `activity.state()`; any thread."""

    def __init__(self, clock: Clock, version: str, pace: Clock | None = None) -> None:
        """`clock` dates what is told; `pace` (without it, `clock` too) measures how long ago it was."""
        self._clock = clock
        self._pace = pace or clock
        self._lock = threading.Lock()
        self._version = version
        self._started_time = self._progress_time = self._pace.now()
        self._values: dict[str, Any] = {"phase": "joining"}
        self._waiting: dict[str, Obstacle] = {}
        self._waited: dict[str, float] = {}
        self._tasks: Counter[str] = Counter({"leased": 0, "generated": 0, "expired": 0, "returned": 0})
        self._taken: Counter[str] = Counter({"load": 0, "patches": 0})
        self._refused: Counter[str] = Counter()
        self._num_received = self._num_tokens = 0
        self._recent: deque[tuple[float, int]] = deque()

    def observe(self, event: str, fields: Mapping[str, Any]) -> None:
        """Take in one line of the log."""
        with self._lock:
            now = self._pace.now()
            if event == "waiting":
                return self._wait(fields, now)
            self._progress_time = now
            if (note := _NOTES.get(event)) is not None:
                note(self, fields, now)
            return None

    def state(self) -> WorkerState:
        """As it is now."""
        with self._lock:
            now = self._pace.now()
            shift = self._clock.now() - now  # as this machine's clock has it now, whoever set it meanwhile
            self._forget(now)
            waited = dict(self._waited)
            for one in self._waiting.values():
                _add(waited, one.obstacle, now - one.since_time)
            known = {"node": None, "pool_id": None, "loaded_version": None, "fetched_version": None}
            last = {"last_submission_id": None, "last_submission_time": None}
            values = {name: value + shift if name in _DATES else value for name, value in self._values.items()}
            return WorkerState(
                pid=os.getpid(),
                version=self._version,
                started_time=self._started_time + shift,
                written_time=now + shift,
                progress_time=self._progress_time + shift,
                waiting=tuple(_dated(one, shift) for one in self._waiting.values()),
                waited_seconds=waited,
                num_taken=dict(self._taken),
                num_tasks=dict(self._tasks),
                num_received=self._num_received,
                num_refused=dict(self._refused),
                num_tokens=self._num_tokens,
                tokens_per_second=self._tokens_per_second(now),
                **{**known, **last, **values},
            )

    def _wait(self, fields: Mapping[str, Any], now: float) -> None:
        obstacle = str(fields.get("obstacle"))
        since = now - float(fields.get("since_seconds", 0.0))
        why, todo = str(fields.get("why", "")), str(fields.get("todo", ""))
        self._waiting[obstacle] = Obstacle(obstacle=obstacle, why=why, todo=todo, since_time=since, told_time=now)

    def _waited_for(self, fields: Mapping[str, Any], now: float) -> None:
        obstacle = str(fields.get("obstacle"))
        self._waiting.pop(obstacle, None)
        _add(self._waited, obstacle, float(fields.get("seconds", 0.0)))

    def _forget(self, now: float) -> None:
        for obstacle, one in list(self._waiting.items()):
            if now - one.told_time > FORGET_SECONDS:
                del self._waiting[obstacle]

    def _joined(self, fields: Mapping[str, Any], now: float) -> None:
        self._values |= {"phase": "working", "node": fields.get("node"), "pool_id": fields.get("pool_id")}

    def _loaded(self, fields: Mapping[str, Any], now: float) -> None:
        self._values["loaded_version"] = fields["policy_version"]
        self._taken[str(fields["way"])] += 1

    def _phase(self, phase: Phase) -> None:
        self._values["phase"] = phase

    def _generated(self, fields: Mapping[str, Any], now: float) -> None:
        num_tokens = int(fields.get("num_units", 0))
        self._tasks["generated"] += 1
        self._num_tokens += num_tokens
        self._recent.append((now, num_tokens))

    def _submitted(self, fields: Mapping[str, Any], now: float) -> None:
        self._values |= {"last_submission_id": fields.get("submission_id"), "last_submission_time": now}

    def _received(self, fields: Mapping[str, Any], now: float) -> None:
        self._num_received += 1
        self._submitted(fields, now)

    def _was_refused(self, fields: Mapping[str, Any], now: float) -> None:
        self._refused[str(fields.get("reason"))] += 1
        self._submitted(fields, now)

    def _tokens_per_second(self, now: float) -> float:
        while self._recent and self._recent[0][0] < now - WINDOW_SECONDS:
            self._recent.popleft()
        seconds = min(WINDOW_SECONDS, now - self._started_time)
        return round(sum(num for _, num in self._recent) / seconds, 2) if seconds > 0 else 0.0


def _dated(obstacle: Obstacle, shift: float) -> Obstacle:
    times = {"since_time": obstacle.since_time + shift, "told_time": obstacle.told_time + shift}
    return obstacle.model_copy(update=times)


def _add(waited: dict[str, float], obstacle: str, seconds: float) -> None:
    """Under the obstacle's name, or with others where there are too many different ones."""
    label = obstacle if obstacle in waited or len(waited) < MAX_LABELS else "other"
    waited[label] = round(waited.get(label, 0.0) + max(0.0, seconds), 1)


_NOTES: dict[str, Any] = {
    "worker.started": Activity._joined,
    "worker.stopping": lambda activity, fields, now: activity._phase("stopping"),
    "worker.stopped": lambda activity, fields, now: activity._phase("stopped"),
    "waited": Activity._waited_for,
    "task.leased": lambda activity, fields, now: activity._tasks.update(["leased"]),
    "task.expired": lambda activity, fields, now: activity._tasks.update(["expired"]),
    "task.returned": lambda activity, fields, now: activity._tasks.update(["returned"]),
    "task.generated": Activity._generated,
    "submission.received": Activity._received,
    "submission.refused": Activity._was_refused,
    "weights.fetched": lambda activity, fields, now: activity._values.update(fetched_version=fields["policy_version"]),
    "weights.loaded": Activity._loaded,
}
