"""An assignment counts only where the chain drew it: each lie of a coordinator beside the truth."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.api import Assignment, VerdictView
from protocol.canonical import canonical_hash
from protocol.draw import BPS, Seat, drawn_seats
from protocol.errors import VerificationFailed
from protocol.signing import Signer, SigningDomain
from protocol.wire import Evidence, Signed, Submission, Task, Verdict
from verifier.colleagues import drawn_verdict
from verifier.draws import can_check, check_assignment
from verifier.history import History

BEACON, LATER_BEACON = "0x" + "be" * 32, "0x" + "bf" * 32
MakeSigner = Callable[[int], Signer]


@pytest.fixture
def history(store: sqlite3.Connection) -> History:
    return History(store)


@pytest.fixture
def assignment(
    chain: Any, log: Any, history: History, domain: SigningDomain, coordinator: Signer, make_signer: MakeSigner
) -> Assignment:
    """An honest draw: submission logged in epoch 0, six seats of three validators."""
    node = make_signer(1)
    shared = {"pool_id": 1, "policy_version": 0, "node": node.address, "counter": 4, "rules_hash": "0x" + "44" * 32}
    submission = Submission(**shared, content_hash="0x" + "c0" * 32)
    task = Task(**shared, beacon_block=9, beacon_hash=BEACON, price_wei=1, max_units=9, deadline=200)
    submission_id = submission.id(domain)
    log.append("submission.received", submission_id, time=150)
    log.anchor(chain)
    history.follow(chain.heads(0), log.read)
    chain.beacons[0] = BEACON
    chain.seat_list = [Seat(i, make_signer(11 + i % 3).address) for i in range(6)]
    drawn = next(drawn_seats(BEACON, submission_id, 0, chain.seat_list, 0))
    return Assignment(
        submission_id=submission_id,
        provider="0x" + "77" * 20,
        submission=Signed[Submission].by(node, submission, domain),
        task=Signed[Task].by(coordinator, task, domain),
        file_sha256="0x" + "f1" * 32,
        epoch=0,
        beacon_hash=BEACON,
        round=0,
        draw=drawn.draw_index,
        seat=drawn.seat.index,
        verdict_epoch=2,
    )


def drawn_validator(chain: Any, assignment: Assignment) -> str:
    return str(chain.seat_list[assignment.seat].validator)


def test_an_honest_draw_is_taken(chain: Any, history: History, assignment: Assignment) -> None:
    received = check_assignment(assignment, drawn_validator(chain, assignment), chain, history)
    assert (received.time, received.epoch) == (150, 0)


def test_a_redraw_is_taken_as_well(chain: Any, history: History, assignment: Assignment) -> None:
    second = list(drawn_seats(BEACON, assignment.submission_id, 0, chain.seat_list, 0))[1]
    later = assignment.model_copy(update={"draw": second.draw_index, "seat": second.seat.index})
    check_assignment(later, second.seat.validator, chain, history)


@pytest.mark.parametrize(
    "lie",
    [
        {"beacon_hash": "0x" + "00" * 32},
        {"epoch": 1},
        {"submission_id": "0x" + "ab" * 32},
        {"round": 5},
        {"draw": 77},
    ],
)
def test_a_lie_about_the_draw_is_refused(
    chain: Any, history: History, assignment: Assignment, lie: dict[str, Any]
) -> None:
    with pytest.raises(VerificationFailed):
        check_assignment(assignment.model_copy(update=lie), drawn_validator(chain, assignment), chain, history)


def test_another_validators_seat_is_refused(
    chain: Any, history: History, assignment: Assignment, make_signer: MakeSigner
) -> None:
    with pytest.raises(VerificationFailed, match="beacon drew"):
        check_assignment(assignment, make_signer(99).address, chain, history)


def test_a_seat_of_the_submissions_own_provider_is_refused(
    chain: Any, history: History, assignment: Assignment
) -> None:
    validator = drawn_validator(chain, assignment)
    chain.providers[assignment.submission.message.node] = validator
    with pytest.raises(VerificationFailed, match="beacon drew"):
        check_assignment(assignment, validator, chain, history)


def test_a_submission_that_the_log_does_not_hold_is_refused(
    chain: Any, assignment: Assignment, tmp_path: Any, log: Any
) -> None:
    from verifier.store import open_store

    db = open_store(tmp_path / "other")
    empty = History(db)
    assert not can_check(assignment, empty)
    with pytest.raises(VerificationFailed, match="log has"):
        check_assignment(assignment, drawn_validator(chain, assignment), chain, empty)
    db.close()


@pytest.fixture
def again(chain: Any, log: Any, history: History, assignment: Assignment) -> Assignment:
    """An honest draw of round 1: settled in epoch 1, by the first validator's verdict, and picked by its beacon."""
    judge = drawn_validator(chain, assignment)
    submission_id = assignment.submission_id
    log.append("verdict.revealed", submission_id, validator=judge, round=0, outcome=0, in_time=True)
    log.append("submission.accepted", submission_id, num_units=9, payments=[])
    log.anchor(chain)
    history.follow(chain.heads(1), log.read)
    chain.beacons[1] = LATER_BEACON
    chain.pool = replace(chain.pool, reaudit_bps=BPS)
    drawn = next(
        d for d in drawn_seats(LATER_BEACON, submission_id, 1, chain.seat_list, 1) if d.seat.validator != judge
    )
    changes = {"epoch": 1, "beacon_hash": LATER_BEACON, "round": 1, "draw": drawn.draw_index, "seat": drawn.seat.index}
    return assignment.model_copy(update=changes)


def test_a_re_audit_that_the_settlings_beacon_picked_and_drew_is_taken(
    chain: Any, again: Assignment, history: History
) -> None:
    received = check_assignment(again, drawn_validator(chain, again), chain, history)
    assert (received.submission_id, received.epoch) == (again.submission_id, 0)


def test_a_re_audit_that_no_beacon_picked_is_refused(chain: Any, again: Assignment, history: History) -> None:
    chain.pool = replace(chain.pool, reaudit_bps=0)
    with pytest.raises(VerificationFailed, match="no beacon picked"):
        check_assignment(again, drawn_validator(chain, again), chain, history)


def test_a_re_audit_by_the_receiving_epochs_beacon_is_refused(
    chain: Any, again: Assignment, assignment: Assignment, history: History
) -> None:
    early = again.model_copy(update={"epoch": 0, "beacon_hash": BEACON})
    with pytest.raises(VerificationFailed, match="another epoch"):
        check_assignment(early, drawn_validator(chain, again), chain, history)


def test_a_re_audit_of_what_is_not_settled_is_refused(chain: Any, assignment: Assignment, history: History) -> None:
    chain.pool = replace(chain.pool, reaudit_bps=BPS)
    early = assignment.model_copy(update={"round": 1})
    with pytest.raises(VerificationFailed, match="another epoch"):
        check_assignment(early, drawn_validator(chain, assignment), chain, history)


def test_a_validator_re_audits_nothing_of_its_own(chain: Any, again: Assignment, history: History) -> None:
    judge = history.payments.opinions.judges(again.submission_id, 0)[0].validator
    drawn = drawn_seats(LATER_BEACON, again.submission_id, 1, chain.seat_list, 1)
    own = next(d for d in drawn if d.seat.validator == judge)
    lie = again.model_copy(update={"draw": own.draw_index, "seat": own.seat.index})
    with pytest.raises(VerificationFailed, match="our own verdict"):
        check_assignment(lie, judge, chain, history)


def test_there_is_no_round_2_yet(chain: Any, again: Assignment, history: History) -> None:
    with pytest.raises(VerificationFailed):
        check_assignment(again.model_copy(update={"round": 2}), drawn_validator(chain, again), chain, history)


# What colleagues have revealed


@pytest.fixture
def revealed_by(chain: Any, assignment: Assignment, domain: SigningDomain) -> Callable[[Signer, int], VerdictView]:
    """A verdict of round 0 that a validator signs for a seat."""

    def view(signer: Signer, seat: int) -> VerdictView:
        evidence = Evidence(submission_id=assignment.submission_id, seed=BEACON, num_units=9, checks=())
        verdict = Verdict(
            submission_id=assignment.submission_id,
            pool_id=1,
            epoch=0,
            round=0,
            seat=seat,
            outcome=0,
            reason=0,
            rules_hash="0x" + "44" * 32,
            evidence_hash=canonical_hash(evidence.as_json()),
        )
        signed = Signed[Verdict].by(signer, verdict, domain)
        return VerdictView(validator=signer.address, verdict=signed, evidence=evidence)

    return view


def test_of_a_validators_seats_only_the_drawn_one_has_a_say(
    chain: Any,
    history: History,
    assignment: Assignment,
    make_signer: MakeSigner,
    revealed_by: Callable[[Signer, int], VerdictView],
) -> None:
    """A coordinator could otherwise bury a verifier in verdicts of a friend's hundred seats."""
    received, claim = history.received(assignment.submission_id), assignment.submission.message
    assert received is not None
    owner = next(s for s in map(make_signer, (11, 12, 13)) if s.address == drawn_validator(chain, assignment))
    stranger = next(s for s in map(make_signer, (11, 12, 13)) if s.address != owner.address)
    others = [seat.index for seat in chain.seat_list if seat.validator == owner.address]
    others.remove(assignment.seat)
    of_drawn = drawn_verdict(revealed_by(owner, assignment.seat), claim, received, chain, history)
    assert of_drawn is not None and of_drawn.seat.seat == assignment.seat
    for signer, seat in ((owner, others[0]), (stranger, assignment.seat), (owner, 77)):
        assert drawn_verdict(revealed_by(signer, seat), claim, received, chain, history) is None
