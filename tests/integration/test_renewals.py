"""Work that takes longer than a lease: the worker renews it at a real coordinator, by a real chain's time."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from coordinator.indexer import index_chain
from coordinator.tasks import expire_leases
from protocol.api import Standing
from protocol.chain.pool import ChainPool
from protocol.reasons import RejectReason
from protocol.wire import Signed, Task
from tests.integration.conftest import World
from tests.unit.worker.conftest import StillClock
from worker.leases import Leases
from worker.membership import Membership
from worker.outbox import Answer, Entry, Outbox
from worker.patience import Patience
from worker.renewals import Renewals
from worker.uploads import Uploads

LEASE_SECONDS, LEASE_MAX = 20, 60
STEP_SECONDS = 4


@dataclass
class SlowNode:
    """A node's leases, renewals and uploads, on a machine whose clock goes with the chain's."""

    world: World
    folder: Path

    def __post_init__(self) -> None:
        world, self.clock = self.world, StillClock()
        chain = ChainPool(world.contracts, world.pool_id)
        coordinator = world.client(world.node)
        self.membership = Membership(world.pool_id, world.node, world.domain, coordinator, chain)
        self.leases = Leases(self.folder / "leases", world.domain)
        self.outbox = Outbox(self.folder / "outbox", give_up_seconds=0)
        self.renewals = Renewals(self.leases, self.membership, self.clock)
        patience = Patience(self.clock, random.Random(0), 0.25, 30.0)
        self.uploads = Uploads(self.outbox, self.membership, self.clock, patience)

    def begins(self) -> Signed[Task]:
        task = self.membership.coordinator.lease(0)
        self.leases.remember(task)
        self.renewals.watch(task)
        return task

    def works(self, task: Signed[Task], seconds: int) -> None:
        """Time goes by, in which the coordinator takes leases back that are over; what is due is renewed."""
        at_hand = frozenset({task.message.id(self.world.domain)})
        started = now = self.membership.chain.time()
        while now < started + seconds:
            self.world.chain.pass_time(STEP_SECONDS)
            before, now = now, self.membership.chain.time()
            self.clock.time += now - before
            index_chain(self.world.coordinator)
            expire_leases(self.world.coordinator)
            if self.renewals.are_due(at_hand):
                self.renewals.renew()

    def hands_in(self, task: Signed[Task]) -> Answer:
        envelope, submission_id, file = self.world.pack(task.message)
        task_id = task.message.id(self.world.domain)
        entry = Entry(task_id=task_id, task=task, submission_id=submission_id, envelope=envelope)
        self.outbox.put(entry, file)
        (answer,) = self.uploads.flush()
        return answer


@pytest.fixture
def node(world: World, tmp_path: Path) -> SlowNode:
    world.coordinator.config = world.coordinator.config.model_copy(update={"lease_seconds": LEASE_SECONDS})
    return SlowNode(world, tmp_path / "node")


def test_work_that_takes_longer_than_a_lease_is_renewed_and_taken_in(node: SlowNode) -> None:
    task = node.begins()
    started = node.membership.chain.time()
    assert task.message.deadline - started <= LEASE_SECONDS
    with capture_logs() as lines:
        node.works(task, 2 * LEASE_SECONDS)
    renewed = [line["deadline"] for line in lines if line["event"] == "task.renewed"]
    assert len(renewed) >= 2 and renewed == sorted(set(renewed))
    assert node.membership.chain.time() > task.message.deadline
    view = node.membership.coordinator.task(task.message.id(node.world.domain))
    assert view.standing is Standing.LEASED and view.renewal is not None
    assert view.renewal.message.deadline == node.leases.deadline(task) == renewed[-1] <= started + LEASE_MAX
    answer = node.hands_in(task)
    assert answer.receipt is not None
    node.world.judge(answer.submission_id)
    assert node.world.standing(answer.submission_id) == "accepted"


def test_work_that_takes_longer_than_the_pool_allows_is_refused_all_the_same(node: SlowNode) -> None:
    task = node.begins()
    with capture_logs() as lines:
        node.works(task, LEASE_MAX + 2 * STEP_SECONDS)
    told = [line for line in lines if line["event"] == "task.not_renewed"]
    assert told and RejectReason.RENEWAL_LIMIT.value in told[-1]["why"]
    assert node.hands_in(task).refusal is RejectReason.LEASE_EXPIRED


def test_where_a_lease_lasts_as_long_as_the_pool_allows_nothing_is_renewed(node: SlowNode) -> None:
    world = node.world
    world.coordinator.config = world.coordinator.config.model_copy(update={"lease_seconds": LEASE_MAX})
    task = node.begins()
    with capture_logs() as lines:
        node.works(task, LEASE_MAX // 2 + STEP_SECONDS)
    assert "task.renewed" not in [line["event"] for line in lines]
    assert node.leases.deadline(task) == task.message.deadline
    assert node.hands_in(task).receipt is not None
