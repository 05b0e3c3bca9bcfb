"""Whatever happens in whatever order: counters without gaps, money that adds up, nothing used twice.

A state machine leases, submits, judges, expires, batches and replays over HTTP, as several nodes and validators
would, and checks the invariants after each step.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select

from coordinator.db.log import Event
from coordinator.db.work import Account, BatchRow, Escrow, GroupRow, SubmissionRow, TaskRow
from coordinator.draws import open_draws
from coordinator.settle import settle
from coordinator.tasks import expire_leases
from protocol.errors import Rejected
from protocol.reasons import Outcome, RejectReason
from protocol.signing import Signer

NO_LEASE = (
    RejectReason.LEASE_LIMIT,
    RejectReason.STALE_POLICY,
    RejectReason.ESCROW_EMPTY,
    RejectReason.NO_DEMAND,
)
OPEN = ("leased", "received", "disputed")
OUTCOMES = st.sampled_from([Outcome.ACCEPT, Outcome.ACCEPT, Outcome.DROP, Outcome.SLASH])


class Life(RuleBasedStateMachine):
    """`make` builds a fresh site in a folder."""

    make: Any

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="proofpool-life-"))
        self.site = type(self).make(self.folder)
        self.nodes = [self.site.node, Signer((40).to_bytes(32, "big"))]
        self.site.add_node(self.nodes[1].address, "0x" + "02" * 20)
        self.tasks: list[Any] = []
        self.sent: list[Any] = []
        self.opened: list[Any] = []
        self.versions = 1
        self.leaves: list[str] = []

    def teardown(self) -> None:
        if hasattr(self, "site"):
            self.site.coordinator.engine.dispose()
            shutil.rmtree(self.folder)

    @rule(who=st.integers(0, 1), back=st.integers(0, 3))
    def lease(self, who: int, back: int) -> None:
        try:
            signed = self.site.lease(max(0, self.versions - 1 - back), self.nodes[who])
        except Rejected as refusal:
            assert refusal.reason in NO_LEASE
        else:
            self.tasks.append((self.nodes[who], signed.message))

    @precondition(lambda self: self.tasks)
    @rule(pick=st.integers(0, 99))
    def submit(self, pick: int) -> None:
        node, task = self.tasks.pop(pick % len(self.tasks))
        self.sent.append((node, self.site.pack(task, node=node)))
        self.replay(-1)

    @rule(who=st.integers(0, 1))
    def work(self, who: int) -> None:
        num_tasks = len(self.tasks)
        self.lease(who, 0)
        if len(self.tasks) > num_tasks:
            self.submit(-1)

    @precondition(lambda self: self.sent)
    @rule(pick=st.integers(0, 99))
    def replay(self, pick: int) -> None:
        node, (envelope, submission_id, file) = self.sent[pick % len(self.sent)]
        try:
            self.site.client(node).submit(envelope, submission_id, file)
        except Rejected as refusal:
            assert refusal.reason in (RejectReason.LEASE_EXPIRED, RejectReason.LEASE_UNKNOWN)

    @rule(seconds=st.sampled_from([1, 5, 70]))
    def mine(self, seconds: int) -> None:
        self.site.mine(seconds)
        expire_leases(self.site.coordinator)

    @rule()
    def close_epoch(self) -> None:
        self.site.close_epoch()
        open_draws(self.site.coordinator)

    @rule(outcome=OUTCOMES)
    def commit(self, outcome: Outcome) -> None:
        reason = None if outcome is Outcome.ACCEPT else RejectReason.TOPLOC_MISMATCH
        for work in self.site.assignments():
            self.opened.append(self.site.commit(work, outcome, reason, part=self.site.part()))

    @rule()
    def reveal(self) -> None:
        """All that are open: some too early, some for the second time, some against an earlier verdict."""
        for opened in self.opened:
            try:
                self.site.reveal(opened)
            except Rejected as refusal:
                assert refusal.reason in (RejectReason.RATE_LIMITED, RejectReason.DUPLICATE)
        settle(self.site.coordinator)

    @rule(outcome=OUTCOMES)
    def judge(self, outcome: Outcome) -> None:
        self.close_epoch()
        self.commit(outcome)
        self.close_epoch()
        self.reveal()

    @rule(consume=st.booleans())
    def train(self, consume: bool) -> None:
        trainer = self.site.client(self.site.trainer)
        offer = trainer.lease_batch(self.versions)
        if offer is not None and consume:
            self.site.publish(self.versions)
            trainer.acknowledge_batch(offer.number)
            self.versions += 1

    @rule(funds=st.sampled_from([2_000, 20_000, 10**9]))
    def fund(self, funds: int) -> None:
        """More money comes in (what was funded never falls)."""
        with self.site.coordinator.reading() as session:
            spoken_for = session.get(Escrow, 1)
            least = 0 if spoken_for is None else spoken_for.reserved_wei + spoken_for.earned_wei
        self.site.pool(funded_wei=max(funds, least))

    @invariant()
    def counters_have_no_gaps(self) -> None:
        if not hasattr(self, "site"):
            return
        with self.site.coordinator.reading() as session:
            given: dict[tuple[int, str], list[int]] = {}
            for task in session.scalars(select(TaskRow).order_by(TaskRow.log_index)):
                given.setdefault((task.policy_version, task.node), []).append(task.counter)
        for counters in given.values():
            assert counters == list(range(len(counters)))

    @invariant()
    def money_adds_up(self) -> None:
        if not hasattr(self, "site"):
            return
        with self.site.coordinator.reading() as session:
            tasks = {task.task_id: task for task in session.scalars(select(TaskRow))}
            submissions = session.scalars(select(SubmissionRow)).all()
            accounts = {account.address: account.cumulative_wei for account in session.scalars(select(Account))}
            escrow = session.get(Escrow, 1) or Escrow(reserved_wei=0, earned_wei=0)
            decided = session.scalars(
                select(Event).where(Event.type.in_(("submission.accepted", "submission.rejected")))
            )
            paid, for_work = self.payments([json.loads(event.document)["data"] for event in decided])
        assert all(tasks[row.task_id].standing == row.standing for row in submissions)
        accepted = [row for row in submissions if row.standing == "accepted"]
        assert for_work == sum(row.num_units * tasks[row.task_id].price_wei for row in accepted)
        assert accounts == paid
        reserved = sum(task.reserved_wei for task in tasks.values() if task.standing in OPEN)
        assert all(task.reserved_wei == 0 for task in tasks.values() if task.standing not in OPEN)
        assert (escrow.earned_wei, escrow.reserved_wei) == (sum(paid.values()), reserved)
        assert reserved + escrow.earned_wei <= self.site.funded()

    def payments(self, decisions: list[dict[str, Any]]) -> tuple[dict[str, int], int]:
        """What the log says: by address, and to providers in all."""
        paid: dict[str, int] = {}
        for decision in decisions:
            for address, amount in decision["payments"]:
                paid[address] = paid.get(address, 0) + int(amount)
        return paid, sum(int(decision["amount_wei"]) for decision in decisions)

    @invariant()
    def no_group_is_in_two_batches(self) -> None:
        if not hasattr(self, "site"):
            return
        with self.site.coordinator.reading() as session:
            handed_out = [
                (ref["submission_id"], ref["group"])
                for batch in session.scalars(select(BatchRow))
                for ref in batch.offer["groups"]
            ]
            assert len(handed_out) == len(set(handed_out))
            for group in session.scalars(select(GroupRow)):
                assert ((group.submission_id, group.group) in handed_out) == (group.use in ("batched", "consumed"))

    @invariant()
    def the_log_only_grows(self) -> None:
        if not hasattr(self, "site"):
            return
        with self.site.coordinator.reading() as session:
            leaves = list(session.scalars(select(Event.leaf_hash).order_by(Event.index)))
        assert leaves[: len(self.leaves)] == self.leaves
        self.leaves = leaves


def live(max_examples: int, num_steps: int) -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=num_steps,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture
def life(empty_database: bytes, portal: Any, site_maker: Any) -> None:
    Life.make = staticmethod(lambda folder: site_maker(folder, empty_database, portal))


@pytest.mark.usefixtures("life")
def test_invariants_hold_in_any_order() -> None:
    live(max_examples=7, num_steps=50)


@pytest.mark.slow
@pytest.mark.usefixtures("life")
def test_invariants_hold_for_longer() -> None:
    live(max_examples=20, num_steps=80)
