"""Batches: accepted groups with variance, each handed out once, in an order that nobody can choose."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from coordinator.batches import Candidate, choose
from coordinator.db.chain import Pool
from coordinator.db.work import GroupRow
from protocol.api import BatchRefusal
from protocol.batches import check_offer, groups_root
from protocol.errors import ProofpoolError, Rejected, VerificationFailed
from protocol.reasons import Outcome, RejectReason
from protocol.rollouts import read_rollouts
from protocol.wire import Batch, Signed
from tests.unit.coordinator.conftest import POOL_ID


def uses(site: Any) -> list[tuple[str | None, str | None]]:
    with site.coordinator.reading() as session:
        rows = session.scalars(select(GroupRow).order_by(GroupRow.submission_id, GroupRow.group))
        return [(row.use, row.unused_reason) for row in rows]


def test_a_batch_holds_exactly_the_rows_of_its_groups(site: Any) -> None:
    task = site.lease().message
    rollouts = site.rollouts(task)
    envelope, submission_id, file = site.pack(task, rollouts)
    site.client(site.node).submit(envelope, submission_id, file)
    site.judge(submission_id)
    trainer = site.client(site.trainer)
    offer = trainer.lease_batch(1)
    data = trainer.batch_file(offer.number)
    header, rows = read_rollouts(data, max_rows=16, max_tokens=8192)
    expected = [rollouts[2 * ref.group + member] for ref in offer.groups for member in range(2)]
    assert [row.row_bytes() for row in rows] == [row.row_bytes() for row in expected]
    assert (header.task_id, header.group_size, header.sampling) == (offer.groups_root, 2, site.rules.sampling)
    assert (offer.num_rollouts, offer.num_tokens) == (4, sum(row.num_units for row in rows))
    message = Batch(pool_id=1, number=offer.number, step=1, groups_root=offer.groups_root)
    Signed[Batch](message=message, signature=offer.signature).check(site.coordinator.signer.address, site.domain)
    assert groups_root([(ref.submission_id, ref.group) for ref in offer.groups]) == offer.groups_root


def test_the_same_step_gets_the_same_offer_until_and_after_it_is_acknowledged(site: Any) -> None:
    trainer = site.client(site.trainer)
    assert trainer.lease_batch(1) is None
    site.accept()
    offer = trainer.lease_batch(1)
    before = site.dump()
    assert trainer.lease_batch(1) == offer
    assert site.dump() == before
    trainer.acknowledge_batch(offer.number)
    trainer.acknowledge_batch(offer.number)
    assert set(uses(site)) == {("consumed", None)}
    assert trainer.lease_batch(1) == offer
    with site.http() as http:
        assert http.get("/v1/batches").json() == [offer.model_dump(mode="json")]


def test_steps_follow_each_other(site: Any) -> None:
    trainer = site.client(site.trainer)
    for step in (0, 2):
        with pytest.raises(Rejected):
            trainer.lease_batch(step)
    site.accept(), site.accept()
    offer = trainer.lease_batch(1)
    with pytest.raises(Rejected) as refusal:
        trainer.lease_batch(2)
    assert refusal.value.reason is RejectReason.LEASE_LIMIT
    trainer.acknowledge_batch(offer.number)
    following = trainer.lease_batch(2)
    assert not set(following.groups) & set(offer.groups)


def test_only_the_trainer_takes_batches(site: Any) -> None:
    site.accept()
    before = site.dump()
    for signer in (site.node, site.validators[0]):
        with pytest.raises(Rejected) as refusal:
            site.client(signer).lease_batch(1)
        assert refusal.value.reason is RejectReason.NOT_REGISTERED
    with pytest.raises(ProofpoolError):
        site.client().lease_batch(1)
    assert site.dump() == before


def test_a_refused_batch_gives_its_other_groups_back_and_the_step_another_batch(site: Any) -> None:
    trainer = site.client(site.trainer)
    for _ in range(3):
        site.accept()
    offer = trainer.lease_batch(1)
    unfit = offer.groups[0].submission_id
    refusal = BatchRefusal(submission_id=unfit, why="a task reward of nan")
    trainer.refuse_batch(offer.number, refusal)
    trainer.refuse_batch(offer.number, refusal)
    another = trainer.lease_batch(1)
    assert (another.number, another.step) == (offer.number + 1, 1)
    assert unfit not in {group.submission_id for group in another.groups}
    with site.coordinator.reading() as session:
        left = session.scalars(select(GroupRow).where(GroupRow.submission_id == unfit))
        batched = {group.group for group in offer.groups if group.submission_id == unfit}
        assert {g.group for g in left if (g.use, g.unused_reason) == ("unused", "unfit")} == batched
    with pytest.raises(Rejected, match="state of the batch"):
        trainer.acknowledge_batch(offer.number)
    trainer.acknowledge_batch(another.number)
    story = trainer.trace(offer.groups_root).what_happened
    assert story.status == "refused" and unfit in story.sentence
    assert f"refused by the trainer over submission {unfit}" in story.sentence


def test_only_the_trainer_refuses_and_only_what_it_has(site: Any) -> None:
    site.accept()
    trainer = site.client(site.trainer)
    offer = trainer.lease_batch(1)
    before = site.dump()
    of_another = BatchRefusal(submission_id="0x" + "5" * 64, why="a task reward of nan")
    with pytest.raises(Rejected, match="a submission of the batch"):
        trainer.refuse_batch(offer.number, of_another)
    with pytest.raises(Rejected):
        site.client(site.node).refuse_batch(offer.number, of_another)
    assert site.dump() == before
    trainer.acknowledge_batch(offer.number)
    with pytest.raises(Rejected, match="state of the batch"):
        trainer.refuse_batch(
            offer.number, of_another.model_copy(update={"submission_id": offer.groups[0].submission_id})
        )
    assert set(uses(site)) == {("consumed", None)}


def test_an_unknown_batch_is_not_found(site: Any) -> None:
    with pytest.raises(ProofpoolError, match="no such object"):
        site.client(site.trainer).acknowledge_batch(3)
    with pytest.raises(ProofpoolError, match="no such object"):
        site.client().batch_file(3)


def test_groups_without_variance_are_paid_but_unused(site: Any) -> None:
    task = site.lease().message
    rollouts = [dataclasses.replace(r, task_reward=1.0) if i < 2 else r for i, r in enumerate(site.rollouts(task))]
    envelope, submission_id, file = site.pack(task, rollouts)
    site.client(site.node).submit(envelope, submission_id, file)
    assert uses(site) == [(None, None), (None, None)]
    site.judge(submission_id)
    assert uses(site) == [("unused", "no_variance"), ("pending", None)]
    assert site.client(site.trainer).lease_batch(1) is None
    site.accept()
    offer = site.client(site.trainer).lease_batch(1)
    assert offer.groups[0].submission_id == submission_id  # the older epoch comes first
    assert offer.groups[0].group == 1


def test_rejected_work_is_never_handed_out(site: Any) -> None:
    submission_id = site.submit()
    site.judge(submission_id, Outcome.DROP, RejectReason.REWARD_MISMATCH)
    assert site.client(site.trainer).lease_batch(1) is None
    assert uses(site) == [(None, None), (None, None)]


def test_groups_past_the_lag_are_stale(site: Any) -> None:
    site.accept()
    for version in (1, 2, 3):
        site.publish(version)
    trainer = site.client(site.trainer)
    assert trainer.lease_batch(4) is None
    assert uses(site) == [("unused", "stale")] * 2
    site.accept(policy_version=1)
    offer = trainer.lease_batch(4)
    assert len(offer.groups) == 2


@pytest.mark.parametrize("max_async", [0, 1])
def test_what_a_batch_left_over_is_surplus_and_what_came_after_the_last_one_is_stale(site: Any, max_async: int) -> None:
    site.pool(max_async=max_async)
    trainer = site.client(site.trainer)
    for _ in range(max_async + 2):
        site.accept()  # one task more than the steps take that version 0 can feed
    for step in range(1, max_async + 2):
        assert trainer.lease_batch(step) is not None
        trainer.acknowledge_batch(step - 1)
        if step <= max_async:
            site.publish(step)
    late = site.accept()  # when no batch can have it any more
    site.publish(max_async + 1)
    assert trainer.lease_batch(max_async + 2) is None
    assert site.client().status().num_by_use == {"consumed": 2 * (max_async + 1), "surplus": 2, "stale": 2}
    with site.coordinator.reading() as session:
        unused = [(g.submission_id == late, g.unused_reason) for g in session.scalars(select(GroupRow)) if not g.batch]
    assert {pair for pair in unused if pair[1]} == {(True, "stale"), (False, "surplus")}


def test_groups_of_earlier_rules_that_are_too_few_hold_up_no_batch(site: Any) -> None:
    def candidate(number: int, rules_hash: str) -> Candidate:
        return Candidate(f"0x{number:064x}", 0, number, "0x" + "ab" * 32, rules_hash)

    early, later = candidate(0, "a"), [candidate(number, "b") for number in (1, 2, 3)]
    assert choose([early, *later], 2) == later[:2]
    assert choose([early, *later], 4) == []
    assert choose([early, candidate(1, "a"), *later], 2)[0] == early  # where they are enough, they are first


@pytest.mark.parametrize("max_async", [0, 1, 4, 8])
def test_a_step_takes_rollouts_of_max_async_versions_back_and_no_further(site: Any, max_async: int) -> None:
    with site.coordinator.writing() as session:
        session.get_one(Pool, POOL_ID).max_async = max_async
    for version in range(1, max_async + 2):
        site.publish(version)
    newest, oldest = max_async + 1, 1
    with pytest.raises(Rejected) as refusal:
        site.lease(oldest - 1)
    assert refusal.value.reason is RejectReason.STALE_POLICY
    site.accept(policy_version=oldest)
    assert site.client().status().num_by_use == {"pending": 2}
    step = newest + 1
    assert len(site.client(site.trainer).lease_batch(step).groups) == 2
    site.client(site.trainer).acknowledge_batch(0)
    site.accept(policy_version=oldest)
    site.publish(newest + 1)
    assert site.client(site.trainer).lease_batch(step + 1) is None
    assert site.client().status().num_by_use == {"consumed": 2, "stale": 2}


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        submission_id=st.integers(0, 5).map(lambda n: f"0x{n:064x}"),
        group=st.integers(0, 3),
        epoch=st.integers(0, 2),
        beacon_hash=st.just("0x" + "ab" * 32),
        rules_hash=st.sampled_from(["a", "b"]),
    ),
    unique_by=lambda candidate: candidate.key,
    min_size=1,
)


@given(CANDIDATES, st.integers(1, 6), st.randoms())
def test_the_choice_depends_on_nothing_but_the_groups(
    candidates: list[Candidate], num_groups: int, random: Any
) -> None:
    shuffled = list(candidates)
    random.shuffle(shuffled)
    chosen = choose(candidates, num_groups)
    assert chosen == choose(shuffled, num_groups)
    assert len(chosen) in (0, num_groups)
    assert len({candidate.rules_hash for candidate in chosen}) <= 1
    left_out = [c for c in candidates if c not in chosen and chosen and c.rules_hash == chosen[0].rules_hash]
    assert all(c.epoch >= chosen[-1].epoch for c in left_out)


def test_an_offer_that_names_a_group_twice_is_refused_though_it_is_signed(site: Any) -> None:
    site.accept()
    offer = site.client(site.trainer).lease_batch(1)
    check_offer(offer, site.coordinator.signer.address, site.domain)
    groups = (offer.groups[0],) * 2
    root = groups_root([(group.submission_id, group.group) for group in groups])
    message = Batch(pool_id=offer.pool_id, number=offer.number, step=offer.step, groups_root=root)
    signature = Signed[Batch].by(site.coordinator.signer, message, site.domain).signature
    doubled = offer.model_copy(update={"groups": groups, "groups_root": root, "signature": signature})
    with pytest.raises(VerificationFailed, match="more than once"):
        check_offer(doubled, site.coordinator.signer.address, site.domain)
