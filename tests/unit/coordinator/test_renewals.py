"""More time for a lease: who gets it, how much, and that everybody who looks at deadlines knows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from coordinator.bundle import proof_bundle
from coordinator.db.chain import Node
from coordinator.db.log import Event
from coordinator.draws import open_draws
from coordinator.submissions import assignments
from coordinator.tasks import expire_leases, void_tasks
from protocol.api import Standing
from protocol.errors import Rejected
from protocol.reasons import RejectReason
from protocol.signing import Signer
from protocol.wire import Signed, Task

LEASE_SECONDS, LEASE_MAX = 20, 60


@pytest.fixture
def site(site: Any) -> Any:
    """Leases of 20 seconds, in a pool that allows 60."""
    site.coordinator.config = site.coordinator.config.model_copy(update={"lease_seconds": LEASE_SECONDS})
    return site


def renew(site: Any, leased: Signed[Task], deadline: int | None = None, node: Signer | None = None) -> int:
    """The new deadline, by a renewal that the coordinator signed for this task."""
    task_id = leased.message.id(site.domain)
    signed = site.client(node or site.node).renew_task(task_id, deadline or leased.message.deadline)
    renewal = signed.check(site.coordinator.signer.address, site.domain)
    assert renewal.task_id == task_id
    return int(renewal.deadline)


def refused(site: Any, leased: Signed[Task], deadline: int | None = None, node: Signer | None = None) -> Rejected:
    """The refusal, which has changed nothing."""
    before = site.dump()
    with pytest.raises(Rejected) as refusal:
        renew(site, leased, deadline, node)
    assert site.dump() == before
    return refusal.value


def events(site: Any) -> list[tuple[str, int | None]]:
    with site.coordinator.reading() as session:
        rows = session.scalars(select(Event).where(Event.type.startswith("task.")).order_by(Event.index)).all()
        return [(row.type, json.loads(row.document)["data"].get("deadline")) for row in rows]


def test_who_is_still_at_it_gets_as_long_again_from_now(site: Any) -> None:
    leased = site.lease()
    site.mine(15)
    assert renew(site, leased) == leased.message.deadline + 15
    assert events(site) == [("task.leased", leased.message.deadline), ("task.renewed", leased.message.deadline + 15)]


def test_what_is_renewed_expires_by_its_new_deadline_and_not_before(site: Any) -> None:
    leased = site.lease()
    site.mine(20)
    renew(site, leased)
    site.mine(20)
    expire_leases(site.coordinator)
    assert [kind for kind, _ in events(site)] == ["task.leased", "task.renewed"]
    site.mine(1)
    expire_leases(site.coordinator)
    assert [kind for kind, _ in events(site)] == ["task.leased", "task.renewed", "task.expired"]


def test_what_is_renewed_is_taken_in_until_its_new_deadline(site: Any) -> None:
    leased = site.lease()
    site.mine(20)
    deadline = renew(site, leased)
    site.mine(20)
    submission_id = site.submit(leased)
    view = site.client().submission(submission_id)
    assert view.renewal is not None and view.renewal.message.deadline == deadline == view.received_time
    assert view.task.message.deadline == leased.message.deadline


def test_what_isnt_renewed_is_not_taken_in_after_its_deadline(site: Any) -> None:
    leased = site.lease()
    site.mine(21)
    with pytest.raises(Rejected) as refusal:
        site.submit(leased)
    assert refusal.value.reason is RejectReason.LEASE_EXPIRED


def test_whoever_judges_is_told_of_the_renewal(site: Any) -> None:
    leased = site.lease()
    site.mine(20)
    deadline = renew(site, leased)
    assert site.client().task(leased.message.id(site.domain)).renewal.message.deadline == deadline
    submission_id = site.submit(leased)
    site.close_epoch()
    open_draws(site.coordinator)
    with site.coordinator.reading() as session:
        seen = [one for signer in site.validators for one in assignments(session, signer.address)]
        bundle = proof_bundle(site.coordinator, session, submission_id)
    assert seen
    assert {one.renewal.message.deadline for one in (*seen, bundle)} == {deadline}
    (stage, *_) = site.client().trace(submission_id).stages
    assert stage.values["deadline"] == str(deadline)
    assert len(stage.log_indexes) == 2


def test_a_lease_lasts_no_longer_than_the_pool_allows(site: Any) -> None:
    leased = site.lease()
    start, deadline = leased.message.deadline - LEASE_SECONDS, leased.message.deadline
    for seconds in (18, 18, 18):
        site.mine(seconds)
        deadline = renew(site, leased, deadline)
    assert deadline == start + LEASE_MAX
    site.mine(3)
    refusal = refused(site, leased, deadline)
    assert (refusal.reason, refusal.value) == (RejectReason.RENEWAL_LIMIT, str(deadline))
    assert site.submit(leased)


def test_a_lost_answer_is_given_again(site: Any) -> None:
    leased = site.lease()
    site.mine(12)
    deadline = renew(site, leased)
    before = site.dump()
    assert renew(site, leased) == deadline
    assert site.dump() == before
    site.mine(12)
    assert renew(site, leased, deadline) == deadline + 12


def test_who_has_most_of_the_time_left_is_told_to_come_later(site: Any) -> None:
    leased = site.lease()
    site.mine(9)
    refusal = refused(site, leased)
    assert (refusal.reason, refusal.value, refusal.threshold) == (RejectReason.RATE_LIMITED, "11", "10")
    site.mine(1)
    assert renew(site, leased)


@pytest.mark.parametrize("end", ["past its deadline", "expired", "handed back", "handed in", "voided"])
def test_what_is_over_is_not_renewed(site: Any, end: str) -> None:
    leased = site.lease()
    if end == "handed in":
        site.submit(leased)
    elif end == "handed back":
        site.client(site.node).return_task(leased.message.id(site.domain))
    elif end == "voided":
        with site.coordinator.writing() as session:
            void_tasks(session, 0)
    else:
        site.mine(21)
        if end == "expired":
            expire_leases(site.coordinator)
    wanted = {"handed in": RejectReason.LEASE_UNKNOWN, "voided": RejectReason.REORGED}
    assert refused(site, leased).reason is wanted.get(end, RejectReason.LEASE_EXPIRED)


def test_a_node_renews_its_own_leases_only(site: Any) -> None:
    leased, other = site.lease(), Signer((51).to_bytes(32, "big"))
    site.add_node(other.address, "0x" + "02" * 20)
    site.mine(15)
    assert refused(site, leased, node=other).reason is RejectReason.LEASE_UNKNOWN
    with pytest.raises(Rejected) as unknown:
        site.client(site.node).renew_task("0x" + "00" * 32, 5)
    assert unknown.value.reason is RejectReason.LEASE_UNKNOWN


def test_a_node_that_lost_its_place_gets_no_more_time(site: Any) -> None:
    leased = site.lease()
    site.mine(15)
    site.mirror(Node(address=site.node.address, provider="0x" + "01" * 20, removed=True))
    assert refused(site, leased).reason is RejectReason.NOT_REGISTERED


def test_work_that_nobody_can_train_on_gets_no_more_time(site: Any) -> None:
    leased = site.lease()
    site.mine(15)
    site.publish(2)
    deadline = renew(site, leased)
    site.mine(12)
    site.publish(3)
    assert refused(site, leased, deadline).reason is RejectReason.STALE_POLICY


def test_an_unsigned_request_renews_nothing(site: Any) -> None:
    leased = site.lease()
    site.mine(15)
    before = site.dump()
    with site.http() as http:
        answer = http.post(f"/v1/tasks/{leased.message.id(site.domain)}/renewal", json={"deadline": 5})
    assert (answer.status_code, answer.json()["code"]) == (401, "signature_invalid")
    assert site.dump() == before


ASKING = st.lists(st.tuples(st.integers(0, 25), st.booleans()), max_size=12)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(ASKING)
def test_however_often_it_is_asked_for_deadlines_grow_within_the_bound(
    site_maker: Callable[..., Any], tmp_path_factory: Any, empty_database: bytes, portal: Any, asking: Any
) -> None:
    folder: Path = tmp_path_factory.mktemp("renewals")
    site = site_maker(folder, empty_database, portal)
    site.coordinator.config = site.coordinator.config.model_copy(update={"lease_seconds": LEASE_SECONDS})
    leased = site.lease()
    deadlines = [leased.message.deadline]
    for seconds, forgets in asking:
        site.mine(seconds + 1)
        try:
            deadlines.append(renew(site, leased, deadlines[0 if forgets else -1]))
        except Rejected as refusal:
            assert refusal.reason in (
                RejectReason.RATE_LIMITED,
                RejectReason.RENEWAL_LIMIT,
                RejectReason.LEASE_EXPIRED,
            )
    start = leased.message.deadline - LEASE_SECONDS
    assert deadlines == sorted(deadlines)
    assert deadlines[-1] <= start + LEASE_MAX
    logged = [deadline for _, deadline in events(site)]
    assert logged == [deadline for deadline, _ in itertools.groupby(deadlines)]
    assert all(later - earlier >= 1 for earlier, later in itertools.pairwise(logged))
    standing = site.client().task(leased.message.id(site.domain)).standing
    expire_leases(site.coordinator)
    ended = site.client().task(leased.message.id(site.domain)).standing
    assert standing is Standing.LEASED
    assert (ended is Standing.EXPIRED) == (site.clock.seconds > deadlines[-1])
    site.coordinator.engine.dispose()
