"""What the trainer's time goes into: phases of the loop, and which of them holds the run up.

    waiting for a batch ─▶ learning ─▶ waiting to publish ─▶ waiting to evaluate ─▶ saving, and again

In: the loop's phases as they begin and end. Out: `StepTimes` of each step, seconds of each phase since the start, and
the phase at hand, for metrics and health.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from protocol.clock import Clock


class Phase(StrEnum):
    """What the loop is at."""

    BATCH = "waiting_for_batch"
    LEARNING = "learning"
    PUBLISHING = "waiting_to_publish"
    EVALUATION = "waiting_to_evaluate"
    SAVING = "saving"
    OTHER = "other"
    """Starting, and what is left between phases."""

    @property
    def is_wait(self) -> bool:
        """Whether it waits for somebody else, rather than compute."""
        return self in (Phase.BATCH, Phase.PUBLISHING, Phase.EVALUATION)


class Bottleneck(StrEnum):
    """What a step would have been quicker without."""

    BATCH = "batch"
    """Waiting for accepted groups: workers and verifiers are the slower ones."""
    PUBLISHING = "publishing"
    """Waiting for weights to be out: lines to the relays' origin, the chain, the coordinator."""
    EVALUATION = "evaluation"
    """Waiting for held-back problems to be through."""
    TRAINING = "training"
    """Learning and saving: the trainer is the slowest."""


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one step, from the end of the step before to its own."""

    waited_seconds: float
    """For the batch: until it was offered, fetched and read."""
    unpublished_seconds: float
    """Of these, while the version before wasn't out, for a batch that was made of nothing else."""
    learn_seconds: float
    waited_to_publish_seconds: float
    """After learning, for the version before to be out."""
    waited_to_evaluate_seconds: float
    """For held-back problems of an earlier version, before the next one's turn."""
    save_seconds: float
    step_seconds: float
    """Of the whole step."""

    @property
    def by_bottleneck(self) -> dict[Bottleneck, float]:
        """Each second of a wait or of work, to what it was for."""
        return {
            Bottleneck.BATCH: self.waited_seconds - self.unpublished_seconds,
            Bottleneck.PUBLISHING: self.waited_to_publish_seconds + self.unpublished_seconds,
            Bottleneck.EVALUATION: self.waited_to_evaluate_seconds,
            Bottleneck.TRAINING: self.learn_seconds + self.save_seconds,
        }


def bottleneck(seconds: Mapping[Bottleneck, float]) -> Bottleneck:
    """What takes longest."""
    return max(seconds, key=lambda one: seconds[one])


class Stopwatch:
    """Example: `with stopwatch.phase(Phase.LEARNING): …`, and at the step's end `stopwatch.lap(unpublished_seconds)`.

    The loop's thread writes it, any thread may read.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._phase = Phase.OTHER
        self._since = self._lap_since = clock.now()
        self._lap = dict.fromkeys(Phase, 0.0)
        self._total = dict.fromkeys(Phase, 0.0)

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """The block is this phase; afterwards it is `OTHER`."""
        self._turn_to(phase)
        try:
            yield
        finally:
            self._turn_to(Phase.OTHER)

    def lap(self, unpublished_seconds: float = 0.0) -> StepTimes:
        """The times since the last lap, or since the start."""
        self._turn_to(Phase.OTHER)
        with self._lock:
            now, lap = self._since, self._lap
            times = StepTimes(
                waited_seconds=lap[Phase.BATCH],
                unpublished_seconds=min(unpublished_seconds, lap[Phase.BATCH]),
                learn_seconds=lap[Phase.LEARNING],
                waited_to_publish_seconds=lap[Phase.PUBLISHING],
                waited_to_evaluate_seconds=lap[Phase.EVALUATION],
                save_seconds=lap[Phase.SAVING],
                step_seconds=now - self._lap_since,
            )
            self._lap, self._lap_since = dict.fromkeys(Phase, 0.0), now
        return times

    def current(self) -> tuple[Phase, float]:
        """The phase at hand, and its seconds so far."""
        with self._lock:
            return self._phase, max(0.0, self.clock.now() - self._since)

    def totals(self) -> dict[Phase, float]:
        """Seconds of each phase since the start, the one at hand included."""
        with self._lock:
            spent = max(0.0, self.clock.now() - self._since)
            return self._total | {self._phase: self._total[self._phase] + spent}

    def _turn_to(self, phase: Phase) -> None:
        now = self.clock.now()
        with self._lock:
            spent = max(0.0, now - self._since)
            self._lap[self._phase] += spent
            self._total[self._phase] += spent
            self._phase, self._since = phase, now
