"""The worker's loop against a pool of fakes: one turn, restarts, outages, refusals, lies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from protocol.api import SubmissionEnvelope
from protocol.engines.base import Request
from protocol.engines.torch import TorchEngine
from protocol.environments.registry import environment_of
from protocol.errors import (
    ChainError,
    MalformedFile,
    NotEligible,
    RolloutTooLong,
    SignatureInvalid,
    Unreachable,
    VerificationFailed,
)
from protocol.prompts import task_prompts
from protocol.randomness import task_seed
from protocol.reasons import RejectReason
from protocol.rollouts import Rollout
from protocol.tokenizer import Tokenizer
from worker.bounds import Bounds
from worker.flights import Flight
from worker.loop import Worker
from worker.outbox import Entry
from worker.selfcheck import SelfCheckFailed
from worker.work import Work

MakeWorker = Callable[..., Worker]


class Killed(BaseException):
    """The process ends here."""


class CountingEngine(TorchEngine):
    """Counts how often it had to generate."""

    def __init__(self) -> None:
        super().__init__()
        self.num_generations = 0

    def add(self, requests: Sequence[Request]) -> None:
        self.num_generations += 1
        super().add(requests)


def only(pool: Any) -> tuple[SubmissionEnvelope, list[Rollout]]:
    (found,) = pool.received.values()
    envelope, rollouts = found
    return envelope, rollouts


def test_one_turn_hands_in_one_submission_for_one_lease(make_worker: MakeWorker, pool: Any, model_folder: Path) -> None:
    worker = make_worker()
    worker.turn()
    envelope, rollouts = only(pool)
    task = pool.tasks[0].message
    submission = envelope.submission.message
    assert (submission.counter, submission.policy_version) == (task.counter, task.policy_version)
    seed = task_seed(task.pool_id, task.policy_version, task.node, task.counter, task.beacon_hash)
    environment = environment_of(pool.rules.environment, Tokenizer.load(model_folder))
    prompts = task_prompts(pool.rules, environment, seed)
    assert [r.problem_id for r in rollouts] == [p.problem_id for p in prompts for _ in range(pool.rules.group_size)]
    for index, rollout in enumerate(rollouts):
        problem = prompts[index // pool.rules.group_size].problem
        assert rollout.task_reward == environment.reward(problem, rollout.output_tokens.tolist())
        assert len(rollout.proofs) == 258 * -(-rollout.num_units // 32)
    assert worker.outbox.pending() == []
    assert worker.leases.open() == []
    assert [answer.receipt is not None for answer in worker.outbox.answers()] == [True]


def test_turns_go_on_with_new_leases(make_worker: MakeWorker, pool: Any) -> None:
    worker = make_worker()
    for _ in range(3):
        worker.turn()
    assert [e.submission.message.counter for e, _ in pool.received.values()] == [0, 1, 2]


STAGES = ("open_work", "rollouts_of", "check_own")


@pytest.mark.parametrize("stage", STAGES)
def test_killed_before_any_stage_the_same_task_is_finished(make_worker: MakeWorker, pool: Any, stage: str) -> None:
    worker = make_worker()

    def die(*arguments: Any) -> Any:
        raise Killed

    setattr(worker, stage, die)
    with pytest.raises(Killed):
        worker.turn()
    make_worker().turn()
    assert len(pool.tasks) == 1
    assert only(pool)[0].submission.message.counter == 0


def test_killed_before_the_upload_nothing_is_generated_again(make_worker: MakeWorker, pool: Any) -> None:
    worker = make_worker()
    pool.refusals["submissions"] = [RejectReason.STORAGE_FULL]
    worker.turn()
    assert not pool.received
    (left,) = worker.outbox.pending()
    engine = CountingEngine()
    make_worker(engine=engine).uploads.flush()
    assert list(pool.received) == [left.submission_id]
    assert engine.num_generations == 0


def test_killed_between_outbox_and_lease_nothing_is_generated_again(
    make_worker: MakeWorker, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker()

    def die(*arguments: Any) -> Any:
        raise Killed

    monkeypatch.setattr(worker.leases, "forget", die)
    with pytest.raises(Killed):
        worker.turn()
    make_worker().turn()
    assert [e.submission.message.counter for e, _ in pool.received.values()] == [0, 1]
    assert len(pool.tasks) == 2


def test_the_same_task_twice_has_the_same_content(make_worker: MakeWorker, pool: Any) -> None:
    """A kill in mid-generation costs time, not identity."""
    seals: list[Entry] = []

    class Sealed(Worker):
        def check_own(self, work: Work, entry: Entry, file: bytes) -> None:
            seals.append(entry)
            if len(seals) == 1:
                raise Killed

    with pytest.raises(Killed):
        make_worker(Sealed).turn()
    make_worker(Sealed).turn()
    assert seals[0].submission_id == seals[1].submission_id


def test_a_lease_that_expired_while_away_is_dropped(make_worker: MakeWorker, pool: Any) -> None:
    make_worker().next_task()
    pool.chain.seconds += 61
    worker = make_worker()
    worker.turn()
    assert only(pool)[0].submission.message.counter == 1
    assert worker.leases.open() == []


@pytest.mark.parametrize("restarts", [True, False], ids=["worker killed", "coordinator killed"])
def test_a_lease_whose_answer_got_lost_is_taken_up(make_worker: MakeWorker, pool: Any, restarts: bool) -> None:
    worker = make_worker()
    pool.loses_leases = True
    with pytest.raises(Unreachable):
        worker.turn()
    pool.loses_leases = False
    worker = make_worker() if restarts else worker
    worker.turn()
    worker.turn()
    assert [e.submission.message.counter for e, _ in pool.received.values()] == [0, 1]
    assert len(pool.tasks) == 2


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff" * 40])
def test_a_lease_that_the_disk_has_damaged_is_asked_for_again(
    make_worker: MakeWorker, pool: Any, tmp_path: Path, damage: bytes
) -> None:
    worker = make_worker()

    def die(*arguments: Any) -> Any:
        raise Killed

    worker.rollouts_of = die  # type: ignore[method-assign]
    with pytest.raises(Killed):
        worker.turn()
    (lease,) = (tmp_path / "data" / "leases").glob("0x*.json")
    lease.write_bytes(damage)
    make_worker().turn()
    assert only(pool)[0].submission.message.counter == 0
    assert len(pool.tasks) == 1


def test_open_leases_are_asked_for_only_where_one_may_be_lost(make_worker: MakeWorker, pool: Any) -> None:
    worker = make_worker()
    for _ in range(3):
        worker.turn()
    assert pool.requests.count("GET /v1/tasks") == 1


def test_a_finished_task_that_waits_for_its_upload_is_not_taken_up_again(make_worker: MakeWorker, pool: Any) -> None:
    pool.refusals["submissions"] = [RejectReason.STORAGE_FULL] * 2
    make_worker().turn()
    assert [task.message.counter for task in pool.open_tasks()] == [0]
    make_worker().turn()
    assert sorted(task.message.counter for task in pool.tasks) == [0, 1]
    assert only(pool)[0].submission.message.counter == 1


def test_an_open_lease_on_other_terms_is_not_taken_up(make_worker: MakeWorker, pool: Any) -> None:
    pool.loses_leases, pool.price_wei = True, 1
    worker = make_worker()
    with pytest.raises(Unreachable):
        worker.turn()
    pool.loses_leases, pool.price_wei = False, 10
    worker.turn()
    assert [e.submission.message.counter for e, _ in pool.received.values()] == [1], "and stops no other"
    assert worker.leases.open() == []


def test_a_newer_version_is_taken_between_tasks(
    make_worker: MakeWorker, make_model_folder: Callable[[int], Path], pool: Any
) -> None:
    worker = make_worker()
    worker.turn()
    pool.publish(make_model_folder(5), 1)
    worker.weights.follow()
    worker.turn()
    assert [e.submission.message.policy_version for e, _ in pool.received.values()] == [0, 1]


def test_an_outage_is_waited_out(make_worker: MakeWorker, pool: Any, make_clock: Callable[[int], Any]) -> None:
    worker = make_worker(clock=(clock := make_clock(5)))
    pool.outage = True
    worker.run(threading.Event())
    assert len(clock.waits) == 5
    assert all(wait > 0 for wait in clock.waits)
    pool.outage = False
    worker.turn()
    assert len(pool.received) == 1


@pytest.mark.parametrize("reason", [RejectReason.LEASE_LIMIT, RejectReason.STALE_POLICY, RejectReason.NOT_REGISTERED])
def test_a_refused_lease_is_asked_for_again(
    make_worker: MakeWorker, pool: Any, make_clock: Callable[[int], Any], reason: RejectReason
) -> None:
    pool.refusals["tasks"] = [reason, reason]
    worker = make_worker(clock=(clock := make_clock(3)))
    worker.run(threading.Event())
    assert [wait > 0 for wait in clock.waits] == [True, True, False]
    assert len(pool.received) == 1


def test_a_refusal_that_may_pass_postpones_one_upload_and_not_the_work(
    make_worker: MakeWorker, pool: Any, make_clock: Callable[[int], Any]
) -> None:
    pool.refusals["submissions"] = [RejectReason.STORAGE_FULL]
    worker = make_worker(clock=(clock := make_clock(99)))
    worker.turn()
    worker.turn()
    assert [e.submission.message.counter for e, _ in pool.received.values()] == [1], "the first isn't due yet"
    clock.time += 1
    worker.uploads.flush()
    assert [e.submission.message.counter for e, _ in pool.received.values()] == [1, 0]


@pytest.mark.parametrize("lie", ["signer", "submission"])
def test_a_receipt_that_binds_nobody_keeps_the_submission(
    make_worker: MakeWorker, pool: Any, make_clock: Callable[[int], Any], lie: str
) -> None:
    pool.receipt_signer, pool.receipt_for = (pool.node, "") if lie == "signer" else (None, "0x" + "77" * 32)
    worker = make_worker(clock=(clock := make_clock(99)))
    worker.turn()
    (waiting,) = worker.outbox.pending()
    pool.receipt_signer, pool.receipt_for = None, ""
    clock.time += 100
    worker.uploads.flush()
    assert not worker.outbox.pending()
    (answer,) = worker.outbox.answers()
    assert answer.receipt is not None and answer.receipt.message.submission_id == waiting.submission_id


def test_a_final_refusal_is_recorded_with_its_reason(make_worker: MakeWorker, pool: Any) -> None:
    pool.refusals["submissions"] = [RejectReason.LEASE_EXPIRED]
    worker = make_worker()
    worker.turn()
    worker.turn()
    assert [(a.counter, a.refusal) for a in worker.outbox.answers()] == [(0, RejectReason.LEASE_EXPIRED), (1, None)]


def test_without_weights_it_waits(make_worker: MakeWorker, make_clock: Callable[[int], Any], pool: Any) -> None:
    worker = make_worker(clock=make_clock(2), follow=False)
    worker.run(threading.Event())
    assert not pool.tasks
    worker.weights.follow()
    worker.turn()
    assert len(pool.received) == 1


def test_nothing_is_leased_before_the_engine_has_the_weights(make_worker: MakeWorker, pool: Any) -> None:
    class Picky(TorchEngine):
        def load(self, folder: Path) -> None:
            raise MalformedFile("can't read weights")

    with pytest.raises(MalformedFile):
        make_worker(engine=Picky()).turn()
    assert not pool.tasks


def test_a_task_on_another_beacon_is_not_worked_on(make_worker: MakeWorker, pool: Any) -> None:
    worker = make_worker()
    signed_task = worker.next_task()
    pool.chain.versions[0] = replace(pool.chain.versions[0], beacon_hash="0x" + "99" * 32)
    with pytest.raises(VerificationFailed, match="another beacon"):
        worker.open_work(signed_task)
    assert worker.leases.open() == []


def test_a_beacon_that_isnt_sealed_yet_is_waited_for(make_worker: MakeWorker, pool: Any) -> None:
    worker = make_worker()
    signed_task = worker.next_task()
    pool.chain.versions[0] = replace(pool.chain.versions[0], beacon_hash=None)
    with pytest.raises(ChainError, match="no beacon"):
        worker.open_work(signed_task)
    assert worker.leases.open() == [signed_task]


def test_a_lease_by_somebody_else_is_refused(make_worker: MakeWorker, pool: Any) -> None:
    worker = make_worker()
    pool.coordinator = pool.trainer
    with pytest.raises(SignatureInvalid):
        worker.turn()
    assert worker.leases.open() == []


def test_a_lease_of_another_version_is_refused(make_worker: MakeWorker, pool: Any) -> None:
    pool.chain.versions[7] = pool.chain.versions[0]
    worker = make_worker()
    lease = worker.membership.coordinator.lease
    worker.membership.coordinator.lease = lambda policy_version: lease(7)  # type: ignore[method-assign]
    with pytest.raises(VerificationFailed, match="wasn't asked for"):
        worker.turn()


def test_rules_that_the_chain_doesnt_name_are_refused(make_worker: MakeWorker, pool: Any) -> None:
    pool.chain.rules_hash = "0x" + "12" * 32
    worker = make_worker()
    with pytest.raises(VerificationFailed, match="rules that the pool hasn't"):
        worker.turn()
    assert worker.leases.open() == []


def test_a_lower_price_than_the_chain_names_is_refused(make_worker: MakeWorker, pool: Any) -> None:
    pool.price_wei -= 1
    worker = make_worker()
    with pytest.raises(VerificationFailed, match="price"):
        worker.turn()
    assert worker.leases.open() == []


def test_a_finished_task_is_not_begun_again(make_worker: MakeWorker, pool: Any) -> None:
    worker = make_worker()
    worker.turn()
    worker.membership.coordinator.lease = lambda policy_version: pool.tasks[0]  # type: ignore[method-assign]
    with pytest.raises(NotEligible, match="finished task"):
        worker.turn()
    assert len(pool.received) == 1


def test_own_faults_end_the_loop_before_anything_is_sent(make_worker: MakeWorker, pool: Any) -> None:
    class Generous(Worker):
        def rewards(self, work: Work, completions: Any) -> list[float]:
            return [1.0 for _ in completions]

    worker = make_worker(Generous)
    with pytest.raises(SelfCheckFailed, match="rewards"):
        worker.run(threading.Event())
    assert not pool.received
    assert worker.outbox.pending() == []


def test_a_stop_during_a_task_lets_it_be_finished(make_worker: MakeWorker, pool: Any) -> None:
    stop = threading.Event()

    class Stopped(Worker):
        def fly(self) -> Flight | None:
            stop.set()
            return super().fly()

    make_worker(Stopped).run(stop)
    assert len(pool.received) == 1
    assert len(pool.tasks) == 1


def test_a_stop_before_the_first_turn_leases_nothing(make_worker: MakeWorker, pool: Any) -> None:
    stop = threading.Event()
    stop.set()
    make_worker().run(stop)
    assert not pool.tasks


def full_disk(*arguments: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_waited_out(
    make_worker: MakeWorker, pool: Any, make_clock: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker(clock=(clock := make_clock(2)), bounds=Bounds(drain_seconds=0))
    monkeypatch.setattr(worker.outbox, "put", full_disk)
    worker.run(threading.Event())
    assert all(wait > 0 for wait in clock.waits)
    assert not pool.received
    assert pool.returned == [pool.tasks[0].message.id(pool.domain)]


def test_what_a_full_disk_doesnt_take_is_not_generated_again(
    make_worker: MakeWorker, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker(engine=(engine := CountingEngine()))
    with monkeypatch.context() as patch:
        patch.setattr(worker.outbox, "put", full_disk)
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                worker.turn()
    worker.turn()
    assert [e.submission.message.counter for e, _ in pool.received.values()] == [0]
    assert engine.num_generations == len(pool.tasks) == 1


def test_a_disk_that_is_full_for_a_lease_costs_the_lease_nothing(
    make_worker: MakeWorker, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker()
    with monkeypatch.context() as patch:
        patch.setattr(worker.leases, "remember", full_disk)
        with pytest.raises(OSError, match="No space left"):
            worker.turn()
    worker.turn()
    assert [e.submission.message.counter for e, _ in pool.received.values()] == [0], "it is asked for what was lost"
    assert len(pool.tasks) == 1


def test_a_rollout_that_the_engine_has_no_room_for_is_handed_back_and_waited_out(
    make_worker: MakeWorker, pool: Any, make_clock: Callable[[int], Any]
) -> None:
    worker = make_worker(engine=TorchEngine(max_cache_tokens=16), clock=(clock := make_clock(3)))
    with capture_logs() as lines:
        worker.run(threading.Event())
    assert len(clock.waits) == 3 and not pool.received
    assert pool.returned == [task.message.id(pool.domain) for task in pool.tasks]
    assert worker.leases.open() == [] and not worker.flights
    told = [line for line in lines if line["event"] == "waiting"]
    assert "max_cache_tokens" in told[0]["todo"]
    make_worker(engine=TorchEngine()).turn()
    assert len(pool.received) == 1


def test_a_task_without_room_leaves_those_in_the_engine_alone(
    make_worker: MakeWorker, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker(bounds=Bounds(max_tasks=2))
    add, num_added = worker.engine.add, []

    def cramped(requests: Any) -> None:
        num_added.append(len(requests))
        if len(num_added) == 2:
            raise RolloutTooLong("a rollout may outgrow the cache")
        add(requests)

    monkeypatch.setattr(worker.engine, "add", cramped)
    worker.turn()
    assert [e.submission.message.counter for e, _ in pool.received.values()] == [0]
    assert pool.returned == [pool.tasks[1].message.id(pool.domain)]
