"""Leases: who gets one, on which policy version, how many, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from coordinator.db.chain import Allotment, CoordinatorBond, Node
from coordinator.db.log import Event
from coordinator.db.work import Escrow, SubmissionRow
from coordinator.limits import HISTORY, MAX_LOST, lease_limit
from coordinator.pool import chain_time
from coordinator.tasks import expire_leases, void_tasks
from protocol.api import BatchRefusal, Standing
from protocol.errors import NotFound, Rejected
from protocol.reasons import RejectReason
from protocol.signing import Signer
from protocol.wire import Signed, Task


def refused_lease(site: Any, node: Signer | None = None, policy_version: int = 0) -> Rejected:
    """The refusal of a lease, which has changed nothing."""
    before = site.dump()
    with pytest.raises(Rejected) as refusal:
        site.client(node or site.node).lease(policy_version)
    assert site.dump() == before
    return refusal.value


def events(site: Any) -> list[str]:
    with site.coordinator.reading() as session:
        return list(session.scalars(select(Event.type).order_by(Event.index)))


def test_a_task_fixes_price_rules_beacon_and_deadline(site: Any) -> None:
    signed = site.lease()
    task = signed.check(site.coordinator.signer.address, site.domain)
    version = site.client().pool()
    assert isinstance(task, Task)
    assert (task.node, task.counter, task.policy_version) == (site.node.address, 0, 0)
    assert (task.rules_hash, task.price_wei) == (site.rules.rules_hash, version.price_wei)
    assert task.max_units == site.rules.max_units == 160
    assert task.deadline == version.freshness.chain_time + 60
    assert site.client().rules(task.rules_hash) == site.rules


def test_an_unregistered_node_gets_no_lease(site: Any) -> None:
    assert refused_lease(site, Signer((77).to_bytes(32, "big"))).reason is RejectReason.NOT_REGISTERED


def test_a_removed_node_gets_no_lease(site: Any) -> None:
    site.mirror(Node(address=site.node.address, provider="0x" + "01" * 20, removed=True))
    assert refused_lease(site).reason is RejectReason.NOT_REGISTERED


def test_stake_that_is_held_doesnt_count(site: Any) -> None:
    site.mirror(Allotment(node=site.node.address, pool_id=1, amount_wei=150, held_wei=51))
    refusal = refused_lease(site)
    assert (refusal.reason, refusal.value, refusal.threshold) == (RejectReason.UNDERSTAKED, "99", "100")
    site.mirror(Allotment(node=site.node.address, pool_id=1, amount_wei=150, held_wei=50))
    assert site.lease()


@pytest.mark.parametrize(
    ("state", "reason"), [({"paused": True}, RejectReason.POOL_PAUSED), ({"closing": True}, RejectReason.POOL_CLOSED)]
)
def test_a_pool_that_rests_leases_nothing_but_takes_work(site: Any, state: dict[str, bool], reason: Any) -> None:
    leased = site.lease()
    site.pool(**state)
    assert refused_lease(site).reason is reason
    assert site.submit(leased)


def test_without_its_coordinators_bond_a_pool_leases_nothing_but_takes_work(site: Any) -> None:
    leased = site.lease()
    site.pool(coordinator_bond_wei=50)
    refusal = refused_lease(site)
    assert (refusal.reason, refusal.value, refusal.threshold) == (RejectReason.POOL_PAUSED, "0", "50")
    assert site.client().pool().paused
    assert site.submit(leased)
    key = site.coordinator.signer.address
    site.mirror(CoordinatorBond(pool_id=1, coordinator=site.trainer.address, amount_wei=50))
    site.mirror(CoordinatorBond(pool_id=1, coordinator=key, amount_wei=49))
    assert (refused_lease(site).value, site.client().pool().paused) == ("49", True)
    site.mirror(CoordinatorBond(pool_id=1, coordinator=key, amount_wei=50))
    assert site.lease() and not site.client().pool().paused


@pytest.mark.parametrize("key", ["0x" + "0c" * 20, "0x" + "00" * 20], ids=["replaced", "revoked"])
def test_a_coordinator_whose_key_was_replaced_signs_nothing_more(
    site: Any, key: str, make_signer: Callable[[int], Signer]
) -> None:
    """Its tasks would be refused by every validator, and its receipts promise what it can't anchor."""
    other = make_signer(77)
    site.add_node(other.address, "0x" + "70" * 20)
    leased, received = site.lease(), site.lease(node=other)
    envelope, submission_id, file = site.pack(received.message, node=other)
    receipt = site.client(other).submit(envelope, submission_id, file)
    own = site.coordinator.signer.address
    site.pool(coordinator=key)
    refusal = refused_lease(site)
    assert (refusal.reason, refusal.value, refusal.threshold) == (RejectReason.POOL_PAUSED, own, key)
    assert site.client().pool().paused
    with pytest.raises(Rejected) as refused:
        site.submit(leased)
    assert refused.value.reason is RejectReason.POOL_PAUSED
    assert site.client(other).submit(envelope, submission_id, file) == receipt, "what it promised before it says again"
    site.pool(coordinator=own)
    assert site.submit(leased) and not site.client().pool().paused


def test_only_versions_within_the_lag_are_leased(site: Any) -> None:
    for version in (1, 2, 3):
        site.publish(version)
    site.publish(4, sealed=False)
    assert site.lease(1).message.policy_version == 1  # 3 - max_async
    stale = refused_lease(site, policy_version=0)
    assert (stale.reason, stale.value, stale.threshold) == (RejectReason.STALE_POLICY, "0", "1")
    unsealed = refused_lease(site, policy_version=4)
    assert (unsealed.reason, unsealed.threshold) == (RejectReason.STALE_POLICY, "3")


def test_counters_are_gap_free_for_each_version_and_node(site: Any) -> None:
    site.publish(1)
    other = Signer((50).to_bytes(32, "big"))
    site.add_node(other.address, "0x" + "02" * 20)
    assert site.lease().message.counter == 0
    site.mine(61)
    expire_leases(site.coordinator)
    assert site.lease().message.counter == 1  # the expired one is burnt
    site.mine(61)
    expire_leases(site.coordinator)
    assert site.lease(1).message.counter == 0
    assert site.lease(node=other).message.counter == 0


def test_new_nodes_start_with_one_lease_and_double_with_each_accepted(site: Any) -> None:
    first = site.lease()
    refusal = refused_lease(site)
    assert (refusal.reason, refusal.value, refusal.threshold) == (RejectReason.LEASE_LIMIT, "1", "1")
    site.judge(site.submit(first))
    site.lease(), site.lease()
    assert refused_lease(site).threshold == "2"


def test_an_expired_lease_is_burnt_logged_and_its_reservation_given_back(site: Any) -> None:
    site.lease()
    with site.coordinator.reading() as session:
        assert session.get(Escrow, 1).reserved_wei == 160 * (10 + 5 * 1)
    site.mine(60)
    expire_leases(site.coordinator)
    assert events(site) == ["task.leased"]  # the deadline itself is still in time
    site.mine(1)
    expire_leases(site.coordinator)
    expire_leases(site.coordinator)
    assert events(site) == ["task.leased", "task.expired"]
    with site.coordinator.reading() as session:
        assert session.get(Escrow, 1).reserved_wei == 0


def test_an_empty_pool_leases_nothing(site: Any) -> None:
    cost = 160 * (10 + 5)
    site.pool(funded_wei=cost - 1)
    refusal = refused_lease(site)
    assert (refusal.reason, refusal.value, refusal.threshold) == (RejectReason.ESCROW_EMPTY, str(cost - 1), str(cost))
    site.pool(funded_wei=cost)
    assert site.lease()


def test_no_more_is_leased_than_the_trainer_can_use(site: Any) -> None:
    site.coordinator.config = site.coordinator.config.model_copy(update={"backlog_steps": 1})
    site.accept()  # two groups with variance wait: what one step takes
    refusal = refused_lease(site)
    assert (refusal.reason, refusal.value, refusal.threshold) == (RejectReason.NO_DEMAND, "2", "2")
    newcomer = Signer(b"\x31" * 32)
    site.add_node(newcomer.address, "0x" + "32" * 20)
    assert site.lease(node=newcomer)  # everybody's first lease
    batch = site.client(site.trainer).lease_batch(1)
    assert batch is not None
    assert refused_lease(site).value == "2"  # the newcomer's task
    site.coordinator.config = site.coordinator.config.model_copy(update={"backlog_steps": 2})
    assert site.lease()


def no_bound(site: Any) -> None:
    """Demand is what the configuration leaves to the lag."""
    site.coordinator.config = site.coordinator.config.model_copy(update={"backlog_steps": None})


@pytest.mark.parametrize("max_async", [0, 2])
def test_as_much_is_leased_as_a_version_can_still_be_trained_on_for(site: Any, max_async: int) -> None:
    no_bound(site)
    site.pool(max_async=max_async)
    site.accept()  # everybody's first lease; a task brings what one step takes
    for _ in range(max_async):
        site.accept()
    refusal = refused_lease(site)
    wanted = 2 * (max_async + 1)
    assert (refusal.reason, refusal.value, refusal.threshold) == (RejectReason.NO_DEMAND, str(wanted), str(wanted))
    trainer = site.client(site.trainer)
    batch = trainer.lease_batch(1)
    assert batch is not None
    assert refused_lease(site).threshold == str(2 * max_async)  # version 0 comes too late for one step more
    trainer.acknowledge_batch(batch.number)
    assert refused_lease(site).threshold == str(2 * max_async)
    site.publish(1)
    if max_async:
        assert refused_lease(site, policy_version=0).threshold == str(2 * max_async)
    assert site.lease(1)
    assert refused_lease(site, policy_version=1).reason is RejectReason.NO_DEMAND


def test_a_refused_batch_is_asked_for_again(site: Any) -> None:
    no_bound(site)
    site.pool(max_async=0)
    submission_id = site.accept()
    trainer = site.client(site.trainer)
    batch = trainer.lease_batch(1)
    assert refused_lease(site).threshold == "0"
    trainer.refuse_batch(batch.number, BatchRefusal(submission_id=submission_id, why="a log-prob of nan"))
    assert site.lease()


def test_work_that_may_never_arrive_holds_up_nothing_that_replaces_it(site: Any) -> None:
    no_bound(site)
    site.pool(max_async=0)
    other = Signer(b"\x31" * 32)
    site.add_node(other.address, "0x" + "32" * 20)
    site.client(other).return_task(site.lease(node=other).message.id(site.domain))  # it is no newcomer any more
    leased = site.lease()
    assert refused_lease(site, node=other).reason is RejectReason.NO_DEMAND
    with site.coordinator.reading() as session:
        left = leased.message.deadline - chain_time(session)
    site.mine(seconds=left // 2 - 1)
    assert refused_lease(site, node=other).reason is RejectReason.NO_DEMAND
    site.mine(seconds=1)
    assert site.lease(node=other)


def test_what_is_challenged_is_replaced_meanwhile(site: Any) -> None:
    no_bound(site)
    site.pool(max_async=0)
    submission_id = site.accept()
    assert refused_lease(site).value == "2"
    with site.coordinator.writing() as session:
        session.get_one(SubmissionRow, submission_id).standing = Standing.CHALLENGED
    assert site.lease()


def test_a_lease_can_be_handed_back(site: Any) -> None:
    task_id = site.lease().message.id(site.domain)
    stranger = Signer((51).to_bytes(32, "big"))
    with pytest.raises(Rejected) as refusal:
        site.client(stranger).return_task(task_id)
    assert refusal.value.reason is RejectReason.LEASE_UNKNOWN
    site.client(site.node).return_task(task_id)
    site.client(site.node).return_task(task_id)
    assert events(site) == ["task.leased", "task.abandoned"]
    assert site.lease()


def test_a_node_sees_its_open_leases_and_no_others(site: Any) -> None:
    other = Signer((50).to_bytes(32, "big"))
    site.add_node(other.address, "0x" + "02" * 20)
    site.judge(site.submit(site.lease()))
    mine, _ = [site.lease(), site.lease()], site.lease(node=other)
    assert site.client(site.node).open_tasks() == mine
    site.submit(mine[0])
    assert site.client(site.node).open_tasks() == mine[1:]
    site.client(site.node).return_task(mine[1].message.id(site.domain))
    assert site.client(site.node).open_tasks() == []


def test_anybody_may_look_at_a_task_and_what_was_handed_in_for_it(site: Any) -> None:
    leased = site.lease()
    task_id = leased.message.id(site.domain)
    found = site.client().task(task_id)
    assert (found.task, found.standing, found.submission_id) == (leased, Standing.LEASED, None)
    submission_id = site.submit(leased)
    found = site.client().task(task_id)
    assert (found.standing, found.submission_id) == (Standing.RECEIVED, submission_id)
    with pytest.raises(NotFound, match="no such object"):
        site.client().task("0x" + "12" * 32)


def test_open_leases_are_told_to_nobody_who_does_not_sign(site: Any) -> None:
    site.lease()
    with site.http() as http:
        answer = http.get("/v1/tasks")
    assert (answer.status_code, answer.json()["code"]) == (401, "signature_invalid")


def test_a_reorg_voids_open_work_of_the_version(site: Any) -> None:
    leased = site.lease()
    with site.coordinator.writing() as session:
        void_tasks(session, 0)
    assert events(site)[-1] == "task.reorged"
    envelope, submission_id, file = site.pack(leased.message)
    assert site.put(envelope, submission_id, file).json()["code"] == "reorged"


def test_a_replayed_lease_request_is_refused(site: Any) -> None:
    captured: list[httpx.Request] = []
    with site.http(site.node) as http:
        http.event_hooks["request"].append(captured.append)
        first = http.post("/v1/tasks", json={"policy_version": 0})
        assert first.status_code == 201
    site.judge(site.submit(_task(first)))  # the limit isn't what refuses it
    before = site.dump()
    replay = captured[0]
    with site.http() as http:
        answer = http.post("/v1/tasks", content=replay.content, headers=dict(replay.headers))
    assert (answer.status_code, answer.json()["code"]) == (401, "signature_invalid")
    assert site.dump() == before


def _task(answer: httpx.Response) -> Any:
    return Signed[Task].model_validate_json(answer.content)


def test_a_lease_request_needs_a_signature_for_this_host_path_and_body(site: Any) -> None:
    with site.http(site.node) as http:
        request = http.build_request("POST", "/v1/tasks", json={"policy_version": 0})
        signed = next(http.auth.sync_auth_flow(request))
    before = site.dump()
    with site.http() as http:
        assert http.post("/v1/tasks", json={"policy_version": 0}).status_code == 401
        changed = http.post("/v1/tasks", content=b'{"policy_version": 1}', headers=dict(signed.headers))
        assert changed.json()["code"] == "signature_invalid"
        elsewhere = http.post("/v1/batches", content=signed.content, headers=dict(signed.headers), params={"step": 1})
        assert elsewhere.json()["code"] == "signature_invalid"
        site.clock.seconds += 61
        late = http.post("/v1/tasks", content=signed.content, headers=dict(signed.headers))
        assert (late.status_code, late.json()["code"]) == (401, "signature_invalid")
    assert site.dump() == before


def test_a_wrong_body_is_a_schema_problem(site: Any) -> None:
    with site.http(site.node) as http:
        for body in (
            b"",
            b"{}",
            b'{"policy_version":-1}',
            b'{"policy_version":0,"more":1}',
            b"[",
            b'{"policy_version":"x"}',
        ):
            answer = http.post("/v1/tasks", content=body, headers={"content-type": "application/json"})
            assert (answer.status_code, answer.json()["code"]) == (422, "schema_invalid"), body


STANDINGS = st.lists(st.sampled_from(["leased", "received", "accepted", "rejected", "expired", "abandoned", "reorged"]))


@given(STANDINGS, st.integers(1, 64))
def test_the_limit_stays_between_one_and_the_most(history: list[str], most: int) -> None:
    assert 1 <= lease_limit(history, most) <= most


@given(STANDINGS)
def test_an_accepted_lease_never_lowers_the_limit(history: list[str]) -> None:
    assert lease_limit([*history, "accepted"], 64) >= lease_limit(history, 64)


def test_more_than_five_percent_abandoned_means_one_at_a_time() -> None:
    good = ["accepted"] * (HISTORY - MAX_LOST)
    assert lease_limit(["abandoned"] * MAX_LOST + good, 64) == 64
    assert lease_limit(["abandoned"] * (MAX_LOST + 1) + good, 64) == 1
