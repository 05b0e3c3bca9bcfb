"""Evaluations beside the training: a worker's prompts and engine, in the loop's waits, and never twice."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from protocol.clock import SystemClock
from protocol.engines.base import Completion, Engine, Request
from protocol.engines.torch import TorchEngine
from protocol.errors import ConfigError
from protocol.rules import Rules, SamplingRules
from protocol.tokenizer import Tokenizer
from protocol.waiting import Waiting
from protocol.wire import ZERO_HASH
from testnet import task
from testnet.plan import BASE_MODEL
from tests.unit.trainer.test_loop import no_engine
from tests.unit.verifier.verifier_world import make_rules
from trainer.checkpoint import RECORD_FILE, CheckpointStore
from trainer.evaluation import EVALUATION_SEED, pass_counts
from trainer.held_back import EvaluationConfig, Evaluations
from trainer.learner import RecipeConfig
from trainer.metrics_file import MetricsFile
from trainer.ranks import ALONE
from trainer.reporting import Reporting
from trainer.step_record import Arithmetic, StateHash, StepRecord
from trainer.stopwatch import Stopwatch

NUM_PROBLEMS, NUM_SAMPLES = 10, 2


class WatchedEngine(TorchEngine):
    """An engine that tells what it is asked, and steps only while it may."""

    def __init__(self) -> None:
        super().__init__(max_batch=8)
        self.asked: list[Request] = []
        self.num_steps = 0
        self.was_asked = threading.Event()
        self.may_step = threading.Event()
        self.may_step.set()
        self.before_step: Callable[[], None] = lambda: None

    def add(self, requests: Sequence[Request]) -> None:
        self.asked += requests
        super().add(requests)
        self.was_asked.set()

    def step(self) -> list[Completion]:
        self.before_step()
        assert self.may_step.wait(60), "nobody lets it step"
        self.num_steps += 1
        return super().step()


class LoopsClock(SystemClock):
    """Tells when the loop has to wait."""

    def __init__(self) -> None:
        self.on_wait: Callable[[], object] = lambda: None

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.on_wait()
        return super().wait(stop, seconds)


@pytest.fixture(scope="module")
def pool_rules() -> Rules:
    rules = make_rules(task.testnet_environment(Tokenizer.load(BASE_MODEL)))
    return rules.model_copy(update={"sampling": SamplingRules(max_new_tokens=16)})


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """Versions 0 to 5, all of the base model's weights."""
    for version in range(6):
        folder = tmp_path / "checkpoints" / str(version)
        folder.mkdir(parents=True)
        (folder / "model").symlink_to(BASE_MODEL)
        record = StepRecord(
            policy_version=version,
            num_updates=version,
            state=StateHash(weights=f"0x{version:064x}", optimizer=ZERO_HASH),
            before=None,
            batch=None,
            recipe=RecipeConfig(),
            arithmetic=Arithmetic.here(ALONE, "float32"),
        )
        (folder / RECORD_FILE).write_text(record.model_dump_json())
    return CheckpointStore(tmp_path / "checkpoints")


@pytest.fixture
def clock() -> LoopsClock:
    return LoopsClock()


@pytest.fixture
def start(
    tmp_path: Path, pool_rules: Rules, clock: LoopsClock, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Evaluations]:
    """The evaluations of a new process over the same folder."""
    monkeypatch.setattr("trainer.held_back.CHUNK_PROBLEMS", 4)

    def make(make_engine: Callable[[], Engine], rules: Rules = pool_rules, **settings: Any) -> Evaluations:
        asked = {"evaluate_every": 2, "num_held_back": NUM_PROBLEMS, "num_samples": NUM_SAMPLES} | settings
        reporting = Reporting(MetricsFile(tmp_path / "metrics.jsonl"), clock, Stopwatch(clock))
        waiting = Waiting(clock, threading.Event(), poll_seconds=0.001)
        folder = tmp_path / "evaluations"
        return Evaluations(
            EvaluationConfig.model_validate(asked), make_engine, lambda: rules, folder, reporting, waiting
        )

    return make


def lines_of(folder: Path) -> list[dict[str, Any]]:
    file = folder / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_passes_are_those_of_a_worker_on_held_back_problems_and_are_measured_once(
    start: Callable[..., Evaluations], store: CheckpointStore, pool_rules: Rules, tmp_path: Path
) -> None:
    evaluations = start(WatchedEngine)
    evaluations.begin(store.of(4))
    assert evaluations.finish()
    engine, environment = TorchEngine(max_batch=3), task.testnet_environment(Tokenizer.load(BASE_MODEL))
    engine.load(BASE_MODEL)
    problems = environment.held_back(NUM_PROBLEMS)
    passes = pass_counts(engine, environment, problems, pool_rules, NUM_SAMPLES, EVALUATION_SEED)
    (line,) = lines_of(tmp_path)
    assert line["step"] == 4 and 0 < sum(passes) < NUM_PROBLEMS * NUM_SAMPLES
    assert line["held_back_average"] == pytest.approx(sum(passes) / (NUM_PROBLEMS * NUM_SAMPLES))
    assert line["held_back_at_least_once"] == sum(one > 0 for one in passes) / NUM_PROBLEMS
    assert (line["num_held_back"], line["num_samples"]) == (NUM_PROBLEMS, NUM_SAMPLES)
    assert line["evaluation_seconds"] > 0
    again = start(no_engine)  # a restart: nothing generates
    again.resume(store, store.of(5))
    again.begin(store.of(4))
    assert again.finish() and len(lines_of(tmp_path)) == 1


def test_more_samples_are_another_evaluation(
    start: Callable[..., Evaluations], store: CheckpointStore, tmp_path: Path
) -> None:
    for num_samples in (1, 2):
        evaluations = start(WatchedEngine, num_samples=num_samples)
        evaluations.begin(store.of(4))
        assert evaluations.finish()
    assert [line["num_samples"] for line in lines_of(tmp_path)] == [1, 2]


def test_a_run_that_ends_within_an_evaluation_goes_on_with_it_and_repeats_no_problem(
    start: Callable[..., Evaluations], store: CheckpointStore, tmp_path: Path
) -> None:
    first, second = WatchedEngine(), WatchedEngine()
    evaluations = start(lambda: first)

    def stop_at_the_second_chunk() -> None:
        if len(first.asked) > 4 * NUM_SAMPLES:
            evaluations.waiting.stop.set()

    first.before_step = stop_at_the_second_chunk
    evaluations.begin(store.of(4))
    assert not evaluations.finish()
    evaluations.stop()
    assert lines_of(tmp_path) == []
    assert len(first.asked) == 8 * NUM_SAMPLES and not first.has_work
    again = start(lambda: second)
    again.resume(store, store.of(5))  # version 4's turn has been
    assert again.finish()
    asked = [(request.seed, request.sample) for request in second.asked]
    assert len(asked) == (NUM_PROBLEMS - 4) * NUM_SAMPLES
    assert not set(asked) & {(request.seed, request.sample) for request in first.asked[: 4 * NUM_SAMPLES]}
    assert [line["step"] for line in lines_of(tmp_path)] == [4]


def test_what_was_measured_of_other_weights_counts_for_nothing(
    start: Callable[..., Evaluations], store: CheckpointStore, tmp_path: Path
) -> None:
    journal = tmp_path / "evaluations" / "4.jsonl"
    journal.parent.mkdir()
    journal.write_text('{"weights":"another"}\n[2,2,2,2]\n')
    engine = WatchedEngine()
    evaluations = start(lambda: engine)
    evaluations.begin(store.of(4))
    assert evaluations.finish()
    assert len(engine.asked) == NUM_PROBLEMS * NUM_SAMPLES


def test_no_completion_goes_on_while_the_loop_computes(
    start: Callable[..., Evaluations], store: CheckpointStore
) -> None:
    engine = WatchedEngine()
    evaluations = start(lambda: engine)
    with evaluations.paused():
        evaluations.begin(store.of(4))
        assert engine.was_asked.wait(60)
        assert engine.num_steps == 0
    assert evaluations.finish()
    assert engine.num_steps > 0


def test_a_pause_ends_with_the_run(start: Callable[..., Evaluations], store: CheckpointStore, tmp_path: Path) -> None:
    engine = WatchedEngine()
    evaluations = start(lambda: engine)
    with evaluations.paused():
        evaluations.begin(store.of(4))
        assert engine.was_asked.wait(60)
        evaluations.stop()
    assert engine.num_steps == 0 and lines_of(tmp_path) == []


def test_the_next_save_waits_for_the_weights_and_only_the_next_turn_for_the_end(
    start: Callable[..., Evaluations], store: CheckpointStore, clock: LoopsClock, tmp_path: Path
) -> None:
    engine = WatchedEngine()
    engine.may_step.clear()
    evaluations = start(lambda: engine)
    evaluations.begin(store.of(2))
    assert evaluations.make_room(3)  # its checkpoint isn't needed any more
    assert lines_of(tmp_path) == []
    clock.on_wait = engine.may_step.set  # the loop had to wait: only then the engine steps
    assert evaluations.make_room(4)
    assert [line["step"] for line in lines_of(tmp_path)] == [2]


def test_the_next_save_waits_for_no_rules_and_no_environment(
    start: Callable[..., Evaluations], store: CheckpointStore, pool_rules: Rules, tmp_path: Path
) -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def rules() -> Rules:
        asked.set()
        assert may_answer.wait(60), "the save waited for them"
        return pool_rules

    evaluations = start(WatchedEngine)
    evaluations._rules = rules
    evaluations.begin(store.of(2))
    assert asked.wait(60) and evaluations.make_room(3)
    may_answer.set()
    assert evaluations.finish()
    assert [line["step"] for line in lines_of(tmp_path)] == [2]


def test_the_last_version_has_its_turn_wherever_it_is(
    start: Callable[..., Evaluations], store: CheckpointStore, clock: LoopsClock, tmp_path: Path
) -> None:
    engines = iter([held := WatchedEngine(), WatchedEngine()])
    held.may_step.clear()
    evaluations = start(lambda: next(engines))
    evaluations.begin(store.of(2))
    clock.on_wait = held.may_step.set
    assert evaluations.make_room(3, is_last=True)
    evaluations.begin(store.of(3), is_last=True)
    assert evaluations.finish()
    assert [line["step"] for line in lines_of(tmp_path)] == [2, 3]


def test_what_goes_wrong_is_raised_in_the_loop(
    start: Callable[..., Evaluations], store: CheckpointStore, pool_rules: Rules
) -> None:
    other = pool_rules.environment.model_copy(update={"environment_hash": ZERO_HASH})
    evaluations = start(WatchedEngine, rules=pool_rules.model_copy(update={"environment": other}))
    evaluations.begin(store.of(4))
    with pytest.raises(ConfigError, match="isn't the pool's"):
        evaluations.finish()


@pytest.mark.parametrize(("every", "due"), [(0, []), (1, [0, 1, 2, 3, 4, 5]), (2, [0, 2, 4]), (4, [0, 4])])
def test_turns_come_every_so_many_steps_or_never(
    start: Callable[..., Evaluations], store: CheckpointStore, every: int, due: list[int]
) -> None:
    evaluations = start(no_engine, evaluate_every=every)
    assert [version for version in range(6) if evaluations.is_due(version)] == due
    if not every:
        evaluations.resume(store, store.of(5))
        evaluations.begin(store.of(4), is_last=True)
        assert evaluations.make_room(5, is_last=True) and evaluations.finish()
