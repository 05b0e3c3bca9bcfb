"""From an anchored submission to its decision: draws, blind commitments, reveals, payment."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from sqlalchemy import select

from coordinator.db.chain import Epoch
from coordinator.db.log import Event
from coordinator.db.work import Account, Draw, Escrow
from coordinator.draws import open_draws, seats_at
from coordinator.settle import settle
from protocol.api import Assignment, VerdictReveal
from protocol.canonical import canonical_hash, sha256
from protocol.draw import drawn_seats
from protocol.errors import ProofpoolError, Rejected
from protocol.merkle.history import event_leaf_hash_of, verify_inclusion
from protocol.reasons import Outcome, RejectReason
from protocol.wire import Signed, VerdictCommitment

MISMATCH = RejectReason.TOPLOC_MISMATCH


def drawn(site: Any, submission_id: str) -> list[Assignment]:
    open_draws(site.coordinator)
    return [work for work in site.assignments() if work.submission_id == submission_id]


def anchored(site: Any) -> tuple[str, Assignment]:
    """A submission whose first seat has been drawn, and that seat's work."""
    submission_id = site.submit()
    site.close_epoch()
    (work,) = drawn(site, submission_id)
    return submission_id, work


def reason_of(site: Any, action: Any) -> RejectReason:
    """The refusal of a request, which has changed nothing."""
    before = site.dump()
    with pytest.raises(Rejected) as refusal:
        action()
    assert site.dump() == before
    return refusal.value.reason


def accounts(site: Any) -> dict[str, int]:
    with site.coordinator.reading() as session:
        return {row.address: row.cumulative_wei for row in session.scalars(select(Account))}


def event_types(site: Any, subject: str) -> list[str]:
    with site.coordinator.reading() as session:
        return list(session.scalars(select(Event.type).where(Event.subject == subject).order_by(Event.index)))


def test_nobody_is_drawn_before_the_epoch_has_its_beacon(site: Any) -> None:
    submission_id = site.submit()
    assert drawn(site, submission_id) == []
    epoch = site.close_epoch()
    site.mirror(Epoch(epoch=epoch, size=1, root="0x", beacon_hash=None))
    assert drawn(site, submission_id) == []


def test_the_draw_is_the_one_that_anybody_computes(site: Any) -> None:
    submission_id, work = anchored(site)
    with site.coordinator.reading() as session:
        seats = seats_at(session, 1, work.epoch)
    expected = next(drawn_seats(work.beacon_hash, submission_id, 0, seats, work.epoch, {work.provider}))
    assert (work.seat, work.draw, work.round) == (expected.seat.index, expected.draw_index, 0)
    assert work.verdict_epoch == 1
    assert site.client().submission_file(submission_id)


def test_the_provider_never_judges_itself(site: Any) -> None:
    for seat in range(3):
        site.add_seat(seat, site.validators[0].address)
    site.add_node(site.node.address, site.validators[0].address)
    submission_id = site.submit()
    site.close_epoch()
    assert drawn(site, submission_id) == []
    assert site.standing(submission_id) == "disputed"
    assert event_types(site, submission_id)[-1] == "submission.disputed"


def test_seats_bonded_later_shift_no_earlier_draw(site: Any) -> None:
    submission_id = site.submit()
    epoch = site.close_epoch()
    with site.coordinator.reading() as session:
        before = seats_at(session, 1, epoch)
    site.add_seat(3, site.trainer.address, active_from_epoch=epoch + 1)
    with site.coordinator.reading() as session:
        assert seats_at(session, 1, epoch) == before
    assert len(drawn(site, submission_id)) == 1


def test_an_accepted_submission_is_paid_and_so_is_its_validator(site: Any) -> None:
    submission_id = site.accept()
    view = site.client().submission(submission_id)
    (verdict,) = view.verdicts
    assert accounts(site) == {view.provider: 10 * view.num_units, verdict.validator: view.num_units}
    with site.coordinator.reading() as session:
        escrow = session.get(Escrow, 1)
        assert (escrow.reserved_wei, escrow.earned_wei) == (0, 11 * view.num_units)
    assert event_types(site, submission_id) == [
        "submission.received",
        "draw.opened",
        "verdict.revealed",
        "submission.accepted",
    ]


def test_a_rejected_submission_isnt_paid_but_its_validator_is(site: Any) -> None:
    submission_id = site.submit()
    site.judge(submission_id, Outcome.DROP, MISMATCH)
    view = site.client().submission(submission_id)
    assert (view.standing, view.reason) == ("rejected", MISMATCH.value)
    assert accounts(site) == {view.verdicts[0].validator: view.num_units}


def test_nobody_slashes_alone(site: Any) -> None:
    submission_id = site.submit()
    site.judge(submission_id, Outcome.SLASH, MISMATCH)
    assert site.standing(submission_id) == "received"
    site.judge(submission_id, Outcome.SLASH, MISMATCH)
    view = site.client().submission(submission_id)
    assert (view.standing, len({v.validator for v in view.verdicts})) == ("rejected", 2)
    assert view.provider not in accounts(site)


def test_a_split_is_settled_by_the_majority_and_the_minority_isnt_paid(site: Any) -> None:
    submission_id = site.submit()
    site.judge(submission_id, Outcome.DROP, MISMATCH)  # one drop rejects: accept_quorum is 1
    other = site.submit()
    site.pool(accept_quorum=2)
    site.close_epoch()
    first, second = drawn(site, other)
    opened = [site.commit(first), site.commit(second, Outcome.DROP, MISMATCH)]
    site.close_epoch()
    for one in opened:
        site.reveal(one)
    settle(site.coordinator)
    assert site.standing(other) == "received"
    paid_before = accounts(site)
    site.judge(other)
    view = site.client().submission(other)
    assert (view.standing, len(view.verdicts)) == ("accepted", 3)
    by_accepting = {v.validator for v in view.verdicts if v.verdict.message.outcome == Outcome.ACCEPT}
    paid_now = accounts(site)
    gained = {a for a in paid_now if paid_now[a] > paid_before.get(a, 0)}
    assert gained == by_accepting | {view.provider}


def test_a_missed_turn_goes_to_the_next_seat_and_a_late_verdict_counts_unpaid(site: Any) -> None:
    submission_id, work = anchored(site)
    for _ in range(3):
        site.close_epoch()
    works = drawn(site, submission_id)
    assert [w.draw == work.draw for w in works].count(False) == 1  # the next seat; the first may still catch up
    late = next(w for w in works if w.draw == work.draw)
    opened = site.commit(late)
    site.close_epoch()
    site.reveal(opened)
    settle(site.coordinator)
    assert site.standing(submission_id) == "accepted"
    assert site.seat_signer(work.seat).address not in accounts(site)
    assert "draw.missed" in event_types(site, submission_id)


def test_when_all_seats_have_missed_it_is_disputed_and_can_still_be_judged(site: Any) -> None:
    submission_id, _ = anchored(site)
    for _ in range(12):
        site.close_epoch()
        open_draws(site.coordinator)
    assert site.standing(submission_id) == "disputed"
    site.judge(submission_id)
    assert site.standing(submission_id) == "accepted"


def test_the_pools_draw_limit_bounds_a_round(site: Any) -> None:
    site.pool(draw_limit=2)
    submission_id, _ = anchored(site)
    for _ in range(12):
        site.close_epoch()
        open_draws(site.coordinator)
    with site.coordinator.reading() as session:
        assert len(session.scalars(select(Draw).where(Draw.submission_id == submission_id)).all()) == 2


def test_a_verdict_cant_be_revealed_before_its_commitment_is_anchored(site: Any) -> None:
    _, work = anchored(site)
    opened = site.commit(work)
    assert reason_of(site, lambda: site.reveal(opened)) is RejectReason.RATE_LIMITED
    epoch = site.close_epoch()
    with site.coordinator.writing() as session:
        session.get_one(Epoch, epoch).block = None  # closed, but not on chain yet
    assert reason_of(site, lambda: site.reveal(opened)) is RejectReason.RATE_LIMITED
    site.close_epoch()
    with site.coordinator.writing() as session:
        session.get_one(Epoch, epoch).block = 1
    site.reveal(opened)


def test_commitments_and_reveals_are_idempotent(site: Any) -> None:
    submission_id, work = anchored(site)
    opened = site.commit(work)
    again = site.commit(work)
    site.close_epoch()
    site.reveal(opened)
    before = site.dump()
    site.reveal(again)
    assert site.dump() == before
    settle(site.coordinator)
    settle(site.coordinator)
    assert event_types(site, submission_id).count("submission.accepted") == 1


def test_a_seat_has_one_commitment_a_part_and_one_verdict_a_draw(site: Any) -> None:
    _, work = anchored(site)
    accept = site.commit(work, part=0)
    assert reason_of(site, lambda: site.commit(work, Outcome.DROP, MISMATCH, part=0)) is RejectReason.DUPLICATE
    drop = site.commit(work, Outcome.DROP, MISMATCH, part=1)
    site.close_epoch()
    site.reveal(accept)
    assert reason_of(site, lambda: site.reveal(drop)) is RejectReason.DUPLICATE


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"epoch": 5}, RejectReason.VALUE_OUT_OF_BOUNDS),
        ({"part": 256}, RejectReason.VALUE_OUT_OF_BOUNDS),
        ({"seat": 9}, RejectReason.NOT_REGISTERED),
        ({"pool_id": 2}, RejectReason.NOT_REGISTERED),
    ],
)
def test_wrong_commitments_are_refused(site: Any, change: dict[str, int], reason: RejectReason) -> None:
    _, work = anchored(site)
    signer = site.seat_signer(work.seat)
    values = {"pool_id": 1, "epoch": 1, "seat": work.seat, "part": 0, "root": "0x" + "00" * 32} | change
    signed = Signed[VerdictCommitment].by(signer, VerdictCommitment(**values), site.domain)
    assert reason_of(site, lambda: site.client(signer).commit_verdicts(signed)) is reason


def test_only_the_seats_owner_commits_for_it(site: Any) -> None:
    _, work = anchored(site)
    stranger = next(v for v in site.validators if v.address != site.seat_signer(work.seat).address)
    message = VerdictCommitment(pool_id=1, epoch=1, seat=work.seat, part=0, root="0x" + "00" * 32)
    by_stranger = Signed[VerdictCommitment].by(stranger, message, site.domain)
    assert reason_of(site, lambda: site.client(stranger).commit_verdicts(by_stranger)) is RejectReason.NOT_REGISTERED
    owner = site.client(site.seat_signer(work.seat))
    assert reason_of(site, lambda: owner.commit_verdicts(by_stranger)) is RejectReason.SIGNATURE_INVALID


def altered(opened: VerdictReveal, site: Any, **changes: Any) -> VerdictReveal:
    """The reveal with another verdict, signed by the same seat."""
    message = opened.verdict.message.model_copy(update=changes)
    signed = type(opened.verdict).by(site.seat_signer(message.seat), message, site.domain)
    return opened.model_copy(update={"verdict": signed})


def test_a_reveal_must_be_what_was_committed_to(site: Any) -> None:
    _, work = anchored(site)
    opened = site.commit(work)
    site.close_epoch()
    other_evidence = opened.evidence.model_copy(update={"num_units": 2})
    wrong = [
        altered(opened, site, outcome=Outcome.DROP, reason=MISMATCH.code),
        altered(opened, site, reason=MISMATCH.code),
        altered(opened, site, outcome=Outcome.SLASH, reason=RejectReason.TERMINATION_INVALID.code),
        altered(opened, site, outcome=7),
        altered(opened, site, epoch=3),
        altered(opened, site, rules_hash="0x" + "01" * 32),
        altered(opened, site, evidence_hash=canonical_hash(other_evidence.as_json())),
        opened.model_copy(update={"evidence": other_evidence}),
        opened.model_copy(update={"salt": "0x" + "01" * 32}),
        opened.model_copy(update={"path": ("0x" + "01" * 32,)}),
    ]
    for reveal in wrong:
        assert reason_of(site, lambda reveal=reveal: site.reveal(reveal)) is RejectReason.SCHEMA_INVALID
    unknown = opened.model_copy(update={"part": 9})
    assert reason_of(site, lambda: site.reveal(unknown)) is RejectReason.LEASE_UNKNOWN
    site.reveal(opened)


def test_a_seat_that_wasnt_drawn_cant_give_a_verdict(site: Any) -> None:
    _, work = anchored(site)
    other_seat = next(seat for seat in range(3) if seat != work.seat)
    opened = site.commit(work.model_copy(update={"seat": other_seat}))
    site.close_epoch()
    assert reason_of(site, lambda: site.reveal(opened)) is RejectReason.NOT_REGISTERED


def test_a_settled_submission_isnt_assigned_any_more(site: Any) -> None:
    site.accept()
    assert site.assignments() == []


def test_the_case_file_holds_what_an_accusation_needs(site: Any) -> None:
    submission_id = site.submit()
    with pytest.raises(ProofpoolError, match="no such object"):
        site.client().case(submission_id)
    site.judge(submission_id, Outcome.SLASH, MISMATCH)
    site.judge(submission_id, Outcome.SLASH, MISMATCH)
    case = site.client().case(submission_id)
    assert case.submission.check(site.node.address, site.domain).id(site.domain) == submission_id
    proof = case.inclusion
    assert event_leaf_hash_of(submission_id, case.event_hash) == proof.leaf_hash
    assert verify_inclusion(proof.leaf_hash, proof.index, proof.size, proof.path, proof.root)
    with site.coordinator.reading() as session:
        assert session.get_one(Epoch, proof.epoch).root == proof.root
        event = session.get_one(Event, proof.index)
        assert "0x" + sha256(event.document).hex() == case.event_hash
    assert len(case.verdicts) == 2
    assert all(a.draw < b.draw for a, b in itertools.pairwise(case.verdicts))
    for one in case.verdicts:
        one.verdict.check(one.validator, site.domain)


@pytest.mark.parametrize(
    "changes",
    [{"value": float("nan")}, {"value": float("inf")}, {"value": 1e-9}, {"value": 1e300}, {"num_audited": 2**60}],
    ids=str,
)
def test_evidence_that_has_no_canonical_form_is_refused(site: Any, changes: dict[str, Any]) -> None:
    """As JSON that Python reads, and nobody else."""
    _, work = anchored(site)
    opened = site.commit(work)
    site.close_epoch()
    body = opened.model_dump(mode="json")
    body["evidence"]["checks"][0] |= changes
    before = site.dump()
    with site.http(site.seat_signer(work.seat)) as http:
        answer = http.post(
            "/v1/verdicts", content=json.dumps(body).encode(), headers={"content-type": "application/json"}
        )
    assert (answer.status_code, answer.json()["code"]) == (422, "schema_invalid")
    assert site.dump() == before
    site.reveal(opened)
