"""Evaluation of a run's policy versions on held-back problems, as a worker would answer them, beside the training.

    save n ──▶ learn n + 1 ──▶ wait for a batch … ──▶ learn n + 2 ──▶ wait …
          └──▶ weights n       problems                               problems ──▶ a line about step n

In: checkpoints, the pool's rules, an engine of its own. Out: avg@k and pass@k of every n-th version in metrics.jsonl.
A thread answers problems while the loop waits for others, and holds still while it computes; what isn't through when
the next version's turn comes is waited for. What is measured is kept: a restart goes on, and repeats nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from protocol.engines.base import Completion, Engine, Request
from protocol.engines.names import Dtype, EngineName
from protocol.environments.base import Environment
from protocol.environments.registry import environment_of
from protocol.rules import Rules
from protocol.tokenizer import Tokenizer
from protocol.waiting import Waiting
from protocol.wire import Hash32
from trainer.checkpoint import Checkpoint, CheckpointStore
from trainer.evaluation import EVALUATION_SEED, pass_counts, pass_rates
from trainer.pass_journal import CHUNK_PROBLEMS, PassJournal
from trainer.reporting import Reporting

LOOK_SECONDS = 0.5
"""How often a thread that holds still looks whether the run is over."""


class EvaluationConfig(BaseModel):
    """How a run is evaluated."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    evaluate_every: int = Field(default=0, ge=0, lt=2**31)
    """Steps between two evaluated versions, the base model's and the last one's included; 0 for no evaluation."""
    num_held_back: int = Field(default=256, ge=1, le=1_000_000)
    """Problems that no task draws and the pass rates are of."""
    num_samples: int = Field(default=1, ge=1, le=65_536)
    """Completions a problem: k of avg@k and pass@k."""
    engine: EngineName = "torch"
    """What generates, as at a worker; it holds the weights a second time, on the first rank."""
    dtype: Dtype = "float32"
    """What the engine computes in."""
    max_batch: int = Field(default=64, ge=1, le=65_536)
    """Completions that decode together."""


class EvaluationPlan(BaseModel):
    """What passes depend on."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: Literal[1] = 1
    weights: Hash32
    rules_hash: Hash32
    num_held_back: int
    num_samples: int
    seed: int


class Stopped(Exception):
    """The run ends: what is measured is kept, and the rest is left to the next start."""


class Evaluations:
    """One version at a time. The loop's thread calls it; it raises there what went wrong in its own."""

    def __init__(
        self,
        config: EvaluationConfig,
        make_engine: Callable[[], Engine],
        rules: Callable[[], Rules],
        folder: Path,
        reporting: Reporting,
        waiting: Waiting,
    ) -> None:
        self.config = config
        self.folder = folder
        self.reporting = reporting
        self.waiting = waiting
        self._make_engine = make_engine
        self._rules = rules
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._has_weights = threading.Event()
        self._may_go = threading.Event()
        self._may_go.set()
        self._is_over = threading.Event()
        self._paused_seconds = 0.0

    def is_due(self, policy_version: int) -> bool:
        """Whether it is one of those that are evaluated wherever the run ends."""
        every = self.config.evaluate_every
        return every > 0 and policy_version % every == 0

    def resume(self, checkpoints: CheckpointStore, newest: Checkpoint) -> None:
        """Begin with the newest version whose turn has been and that isn't through, if its checkpoint is there."""
        due = [version for version in checkpoints.versions() if self.is_due(version)]
        if due:
            self.begin(newest if due[-1] == newest.policy_version else checkpoints.of(due[-1]))

    def begin(self, checkpoint: Checkpoint, *, is_last: bool = False) -> None:
        """Evaluate this version if its turn is, and it isn't through: `make_room` has seen to the one before."""
        version = checkpoint.policy_version
        is_due = self.is_due(version) or (is_last and self.config.evaluate_every > 0)
        if not is_due or self._is_reported(version):
            return
        self._has_weights.clear()
        self._thread = threading.Thread(target=self._run, args=(checkpoint,), name="evaluation")
        self._thread.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No completion goes on during the block, but for the engine's step at hand."""
        self._may_go.clear()
        try:
            yield
        finally:
            self._may_go.set()

    def make_room(self, policy_version: int, *, is_last: bool = False) -> bool:
        """Before that version is saved, whose checkpoint may take an earlier one's place. False if stopped before."""
        is_due = self.is_due(policy_version) or is_last
        return self._wait_until(lambda: not self._is_at_work() or (not is_due and self._has_weights.is_set()))

    def finish(self) -> bool:
        """Until nothing is left to evaluate. False if stopped before."""
        return self._wait_until(lambda: not self._is_at_work())

    def stop(self) -> None:
        """The run is over: what is at work ends at its engine's next step."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    def _wait_until(self, holds: Callable[[], bool]) -> bool:
        found = self.waiting.until("the evaluation on held-back problems", lambda: holds() or None)
        if self._error is not None:
            raise self._error
        return bool(found)

    def _is_at_work(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _is_reported(self, policy_version: int) -> bool:
        asked = {
            "step": policy_version,
            "num_held_back": self.config.num_held_back,
            "num_samples": self.config.num_samples,
        }
        return any(line.items() >= asked.items() for line in self.reporting.metrics.lines())

    def _run(self, checkpoint: Checkpoint) -> None:
        try:
            self._evaluate(checkpoint)
        except Stopped:
            return
        except BaseException as error:  # it travels: the loop raises it at its next look
            self._error = error

    def _evaluate(self, checkpoint: Checkpoint) -> None:
        started, self._paused_seconds = self._now(), 0.0
        engine = HoldingEngine(self._make_engine(), self._hold)
        try:
            engine.load(checkpoint.model_folder)
            self._has_weights.set()  # before all else, since the next save may wait for that
            passes = self._pass_counts(checkpoint, engine)
        finally:
            engine.close()
        seconds = self._now() - started - self._paused_seconds
        self.reporting.evaluated(checkpoint.policy_version, pass_rates(passes, self.config.num_samples), seconds)

    def _pass_counts(self, checkpoint: Checkpoint, engine: Engine) -> list[int]:
        """Of the version that the engine has, by the pool's rules as they are now."""
        tokenizer = Tokenizer.load(checkpoint.model_folder)
        rules = self._known_rules()
        plan = EvaluationPlan(
            weights=checkpoint.record.state.weights,
            rules_hash=rules.rules_hash,
            num_held_back=self.config.num_held_back,
            num_samples=self.config.num_samples,
            seed=EVALUATION_SEED,
        )
        journal = PassJournal(self.folder / f"{checkpoint.policy_version}.jsonl", plan)
        if journal.other_plan is not None:
            journal.start_anew()
        return self._measure(journal, environment_of(rules.environment, tokenizer), rules, engine)

    def _measure(self, journal: PassJournal, environment: Environment, rules: Rules, engine: Engine) -> list[int]:
        """Passes of all problems; those that are measured already come from the journal."""
        problems, passes = environment.held_back(self.config.num_held_back), journal.passes()
        while len(passes) < len(problems):
            part = problems[len(passes) : len(passes) + CHUNK_PROBLEMS]
            found = pass_counts(engine, environment, part, rules, self.config.num_samples, EVALUATION_SEED)
            journal.append(found)
            passes += found
        return passes

    def _known_rules(self) -> Rules:
        """The pool's, as soon as the coordinator says them."""
        rules = self.waiting.until("the pool's rules", self._rules)
        if rules is None:
            raise Stopped
        return rules

    def _hold(self) -> None:
        """Before each step of the engine: until the loop computes nothing. Raises Stopped where the run is over."""
        since = self._now()
        while not self._may_go.wait(LOOK_SECONDS):
            self._check()
        self._paused_seconds += self._now() - since
        self._check()

    def _check(self) -> None:
        if self._is_over.is_set() or self.waiting.stop.is_set():
            raise Stopped

    def _now(self) -> float:
        return self.reporting.stopwatch.clock.now()


class HoldingEngine:
    """An engine that calls `hold` before each of its steps."""

    def __init__(self, engine: Engine, hold: Callable[[], None]) -> None:
        self._engine = engine
        self._hold = hold

    def load(self, folder: Path) -> None:
        """The engine's."""
        self._engine.load(folder)

    def add(self, requests: Sequence[Request]) -> None:
        """The engine's."""
        self._engine.add(requests)

    def step(self) -> list[Completion]:
        """The engine's, once `hold` lets it."""
        self._hold()
        return self._engine.step()

    @property
    def has_work(self) -> bool:
        return self._engine.has_work

    @property
    def num_waiting(self) -> int:
        return self._engine.num_waiting

    def abort(self) -> None:
        """The engine's."""
        self._engine.abort()

    def close(self) -> None:
        """The engine's."""
        self._engine.close()
