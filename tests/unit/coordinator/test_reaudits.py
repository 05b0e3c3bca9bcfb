"""Round 1: who is judged again, by whom, what a contradiction does, and what later seats say of work stamps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import select

from coordinator.db.log import Event
from coordinator.db.work import Account, Escrow, ReauditRow
from coordinator.draws import open_draws
from coordinator.reaudits import reaudit
from coordinator.settle import settle
from protocol.api import Assignment, ReauditState, Standing, SubmissionView
from protocol.draw import BPS, is_reaudited
from protocol.errors import ProofpoolError
from protocol.reasons import Outcome, RejectReason
from protocol.signing import Signer
from protocol.wire import StampReview

MISMATCH = RejectReason.TOPLOC_MISMATCH
AGREES, DISPUTES = (True, 0.0012), (False, 7.5)


@pytest.fixture(autouse=True)
def five_validators_and_every_submission_again(site: Any) -> None:
    site.pool(reaudit_bps=BPS)
    for number in (20, 21):
        site.validators.append(Signer(number.to_bytes(32, "big")))
        site.add_seat(len(site.validators) - 1, site.validators[-1].address)


def view(site: Any, submission_id: str) -> SubmissionView:
    found: SubmissionView = site.client().submission(submission_id)
    return found


def state(site: Any, submission_id: str) -> ReauditState | None:
    found = view(site, submission_id).reaudit
    return None if found is None else found.state


def drawn_again(site: Any, submission_id: str) -> list[Assignment]:
    """The settling is anchored, its beacon is there, and whoever is drawn for round 1 now."""
    site.close_epoch()
    return turn(site, submission_id)


def turn(site: Any, submission_id: str) -> list[Assignment]:
    reaudit(site.coordinator)
    return [work for work in site.assignments() if work.submission_id == submission_id and work.round == 1]


def say(
    site: Any,
    work: Assignment,
    outcome: Outcome = Outcome.ACCEPT,
    stamps: dict[tuple[int, int], tuple[bool, float]] | None = None,
) -> None:
    """Commit, anchor, reveal: a verdict with reviews of the stamps of (round, seat)."""
    reviews = tuple(
        StampReview(round=number, seat=seat, agrees=agrees, largest_difference=difference)
        for (number, seat), (agrees, difference) in (stamps or {}).items()
    )
    reason = None if outcome is Outcome.ACCEPT else MISMATCH
    opened = site.commit(work, outcome, reason, part=site.part(), stamp_reviews=reviews)
    site.close_epoch()
    site.reveal(opened)


def events(site: Any, submission_id: str, kind: str) -> list[dict[str, Any]]:
    query = select(Event.document).where(Event.subject == submission_id, Event.type == kind).order_by(Event.index)
    with site.coordinator.reading() as session:
        return [json.loads(document)["data"] for document in session.scalars(query)]


def earned(site: Any, address: str) -> int:
    with site.coordinator.reading() as session:
        account = session.get(Account, address)
        return 0 if account is None else account.cumulative_wei


def reserved(site: Any) -> int:
    with site.coordinator.reading() as session:
        return session.get_one(Escrow, 1).reserved_wei


def test_nobody_knows_beforehand_and_then_the_settlings_beacon_decides(site: Any) -> None:
    submission_id = site.accept()
    assert turn(site, submission_id) == [] and state(site, submission_id) is ReauditState.WAITING
    epoch = site.close_epoch()
    (work,) = turn(site, submission_id)
    found = view(site, submission_id)
    assert found.reaudit is not None and (found.reaudit.state, found.reaudit.epoch) == (ReauditState.DRAWN, epoch)
    assert (work.epoch, work.num_revealed) == (epoch, 1) and epoch > found.epoch
    assert is_reaudited(work.beacon_hash, submission_id, BPS)
    assert events(site, submission_id, "reaudit.drawn") == [{"epoch": epoch}]


def test_what_the_beacon_does_not_pick_is_left_alone_and_gives_its_reservation_back(site: Any) -> None:
    site.pool(reaudit_bps=1)
    submission_id = site.accept()
    assert reserved(site) > 0
    assert drawn_again(site, submission_id) == []
    assert state(site, submission_id) is ReauditState.NOT_DUE and reserved(site) == 0


def test_a_pool_without_a_rate_expects_nothing(site: Any) -> None:
    site.pool(reaudit_bps=0)
    submission_id = site.accept()
    assert drawn_again(site, submission_id) == [] and state(site, submission_id) is None and reserved(site) == 0


def test_the_validator_of_round_0_does_not_audit_itself(site: Any) -> None:
    for _ in range(4):
        submission_id = site.accept()
        (work,) = drawn_again(site, submission_id)
        (first,) = view(site, submission_id).verdicts
        assert site.seat_signer(work.seat).address != first.validator


def test_a_seat_that_agrees_ends_it_and_is_paid(site: Any) -> None:
    submission_id = site.accept()
    (work,) = drawn_again(site, submission_id)
    (first,) = view(site, submission_id).verdicts
    say(site, work, stamps={(0, first.verdict.message.seat): AGREES})
    assert turn(site, submission_id) == [] and state(site, submission_id) is ReauditState.AGREED
    found = view(site, submission_id)
    assert found.standing is Standing.ACCEPTED and [v.num_stamp_agreeing for v in found.verdicts] == [1, 0]
    auditor = site.seat_signer(work.seat).address
    assert earned(site, auditor) == found.num_units
    (closing,) = events(site, submission_id, "reaudit.agreed")
    assert closing["payments"] == [[auditor, str(found.num_units)]]
    assert site.client().status().num_by_reaudit == {"agreed": 1}


def test_the_end_of_a_re_audit_is_picked_once_more_and_its_seat_speaks_of_both(site: Any) -> None:
    submission_id = site.accept()
    (work,) = drawn_again(site, submission_id)
    say(site, work)
    assert turn(site, submission_id) == [] and state(site, submission_id) is ReauditState.AGREED
    epoch = site.close_epoch()
    (second,) = turn(site, submission_id)
    assert events(site, submission_id, "reaudit.drawn")[-1] == {"epoch": epoch}
    assert (second.epoch, second.num_revealed) == (work.epoch, 2) and second.seat != work.seat
    say(site, second, stamps={(1, work.seat): DISPUTES})
    (third,) = turn(site, submission_id)  # a dispute asks for one more at once
    say(site, third, stamps={(1, work.seat): DISPUTES, (1, second.seat): AGREES})
    turn(site, submission_id)
    num_units = view(site, submission_id).num_units
    validators = [site.seat_signer(one.seat).address for one in (work, second, third)]
    assert [earned(site, validator) for validator in validators] == [num_units] * 3
    paid = [[account for account, _ in data["payments"]] for data in events(site, submission_id, "reaudit.agreed")]
    assert paid == [validators[:1], validators[1:]]


def test_what_is_not_picked_once_more_is_over(site: Any) -> None:
    submission_id = site.accept()
    (work,) = drawn_again(site, submission_id)
    say(site, work)
    turn(site, submission_id)
    assert reserved(site) > 0
    site.pool(reaudit_bps=0)
    assert drawn_again(site, submission_id) == []
    assert state(site, submission_id) is ReauditState.AGREED and reserved(site) == 0


def test_an_outvoted_contradiction_challenges_nothing_again(site: Any) -> None:
    submission_id = site.accept()
    (work,) = drawn_again(site, submission_id)
    say(site, work, Outcome.DROP)
    (second,) = turn(site, submission_id)
    say(site, second)
    turn(site, submission_id)
    (third,) = drawn_again(site, submission_id)
    assert view(site, submission_id).standing is Standing.ACCEPTED
    say(site, third)
    turn(site, submission_id)
    assert state(site, submission_id) is ReauditState.AGREED
    assert len(events(site, submission_id, "submission.challenged")) == 1


def test_a_contradiction_challenges_at_once_and_a_majority_against_it_stays_so(site: Any) -> None:
    submission_id = site.accept()
    (work,) = drawn_again(site, submission_id)
    say(site, work, Outcome.SLASH)
    (second,) = turn(site, submission_id)
    assert view(site, submission_id).standing is Standing.CHALLENGED
    assert site.client(site.trainer).lease_batch(1) is None
    say(site, second, Outcome.SLASH)
    turn(site, submission_id)
    assert state(site, submission_id) is ReauditState.DISAGREED
    assert view(site, submission_id).standing is Standing.CHALLENGED
    assert site.client(site.trainer).lease_batch(1) is None
    num_units = view(site, submission_id).num_units
    assert [earned(site, site.seat_signer(one.seat).address) for one in (work, second)] == [num_units] * 2


def test_what_is_not_contradicted_goes_to_the_trainer(site: Any) -> None:
    submission_id = site.accept()
    drawn_again(site, submission_id)
    offer = site.client(site.trainer).lease_batch(1)
    assert offer is not None and {group.submission_id for group in offer.groups} == {submission_id}


def test_one_seat_alone_turns_nothing(site: Any) -> None:
    submission_id = site.accept()
    (work,) = drawn_again(site, submission_id)
    say(site, work, Outcome.DROP)
    (second,) = turn(site, submission_id)
    say(site, second)
    turn(site, submission_id)
    assert state(site, submission_id) is ReauditState.AGREED
    assert view(site, submission_id).standing is Standing.ACCEPTED
    assert earned(site, site.seat_signer(work.seat).address) == 0
    paying = [data["payments"] for data in events(site, submission_id, "submission.accepted")]
    assert len(paying) == 2 and paying[0] and paying[1] == []
    assert site.client(site.trainer).lease_batch(1) is not None


def test_rejected_work_is_judged_again_too(site: Any) -> None:
    submission_id = site.submit()
    site.judge(submission_id, Outcome.DROP, MISMATCH)
    (work,) = drawn_again(site, submission_id)
    say(site, work)
    turn(site, submission_id)
    assert view(site, submission_id).standing is Standing.CHALLENGED


def test_where_nobody_is_left_it_stays_undecided(site: Any) -> None:
    submission_id = site.accept()
    (first,) = view(site, submission_id).verdicts
    for seat in range(5):
        site.add_seat(seat, first.validator)
    assert drawn_again(site, submission_id) == []
    assert state(site, submission_id) is ReauditState.UNDECIDED and reserved(site) == 0
    assert view(site, submission_id).standing is Standing.ACCEPTED
    assert events(site, submission_id, "reaudit.undecided")[0]["payments"] == []


def test_a_missed_turn_of_round_1_goes_to_the_next_seat(site: Any) -> None:
    submission_id = site.accept()
    (work,) = drawn_again(site, submission_id)
    for _ in range(site.coordinator.config.reveal_epochs):
        site.close_epoch()
    open_draws(site.coordinator)
    assert {one.seat for one in turn(site, submission_id)} > {work.seat}


def test_a_verdict_of_round_1_names_the_epoch_that_drew_it(site: Any) -> None:
    submission_id = site.accept()
    (work,) = drawn_again(site, submission_id)
    wrong = work.model_copy(update={"epoch": view(site, submission_id).epoch})
    opened = site.commit(wrong, part=site.part())
    site.close_epoch()
    with pytest.raises(ProofpoolError, match="another pool, epoch or rules"):
        site.reveal(opened)


def test_a_disputed_stamp_is_logged_named_and_asks_for_one_more_seat(site: Any) -> None:
    submission_id = site.accept()
    (work,) = drawn_again(site, submission_id)
    (first,) = view(site, submission_id).verdicts
    key = (0, first.verdict.message.seat)
    say(site, work, stamps={key: DISPUTES})
    (dispute,) = events(site, submission_id, "stamp.disputed")
    assert dispute == {
        "round": 0,
        "seat": key[1],
        "validator": first.validator,
        "by_seat": work.seat,
        "largest_difference": 7.5,
    }
    assert site.client().status().disputed_stamps == {first.validator: 1}
    (second,) = turn(site, submission_id)
    say(site, second, stamps={key: DISPUTES, (1, work.seat): AGREES})
    turn(site, submission_id)
    assert state(site, submission_id) is ReauditState.AGREED
    assert [(v.num_stamp_agreeing, v.num_stamp_disputing) for v in view(site, submission_id).verdicts] == [
        (0, 2),
        (1, 0),
        (0, 0),
    ]


def test_a_dispute_that_the_next_seat_does_not_share_is_none(site: Any) -> None:
    submission_id = site.accept()
    (work,) = drawn_again(site, submission_id)
    (first,) = view(site, submission_id).verdicts
    key = (0, first.verdict.message.seat)
    say(site, work, stamps={key: DISPUTES})
    (second,) = turn(site, submission_id)
    say(site, second, stamps={key: AGREES, (1, work.seat): DISPUTES})
    liar = site.seat_signer(work.seat).address
    assert site.client().status().disputed_stamps == {liar: 1}
    (third,) = turn(site, submission_id)
    say(site, third, stamps={key: AGREES, (1, work.seat): DISPUTES, (1, second.seat): AGREES})
    turn(site, submission_id)
    assert state(site, submission_id) is ReauditState.AGREED
    assert earned(site, liar) == 0 and earned(site, site.seat_signer(second.seat).address) > 0


def test_nobody_reviews_itself_or_what_is_not_there(site: Any) -> None:
    submission_id = site.accept()
    (work,) = drawn_again(site, submission_id)
    say(site, work, stamps={(1, work.seat): AGREES, (0, 4_000): DISPUTES, (7, 0): DISPUTES})
    assert events(site, submission_id, "stamp.disputed") == []
    assert all(v.num_stamp_agreeing == v.num_stamp_disputing == 0 for v in view(site, submission_id).verdicts)


def test_a_stamp_that_is_disputed_before_the_settling_is_not_paid(site: Any) -> None:
    site.pool(accept_quorum=2)
    submission_id = site.submit()
    site.close_epoch()
    open_draws(site.coordinator)
    first, second = [work for work in site.assignments() if work.submission_id == submission_id]
    say(site, first)
    say(site, second, Outcome.DROP, stamps={(0, first.seat): DISPUTES})
    open_draws(site.coordinator)
    (third,) = [work for work in site.assignments() if work.seat not in (first.seat, second.seat)]
    say(site, third, stamps={(0, first.seat): DISPUTES, (0, second.seat): AGREES})
    settle(site.coordinator)
    assert view(site, submission_id).standing is Standing.ACCEPTED
    assert earned(site, site.seat_signer(first.seat).address) == 0
    assert earned(site, site.seat_signer(third.seat).address) > 0


def test_the_trace_shows_both_rounds_and_what_is_said_of_stamps(site: Any) -> None:
    submission_id = site.accept()
    (work,) = drawn_again(site, submission_id)
    (first,) = view(site, submission_id).verdicts
    say(site, work, stamps={(0, first.verdict.message.seat): AGREES})
    turn(site, submission_id)
    stages = site.client().trace(submission_id).stages
    verdicts = [stage for stage in stages if stage.stage == "verdict"]
    assert [stage.values["round"] for stage in verdicts] == ["0", "1"]
    assert verdicts[0].values["stamp"] == "1 agree, 0 dispute"
    (again,) = [stage for stage in stages if stage.stage == "re-audit"]
    assert again.status == "agreed" and len(again.log_indexes) == 2


def test_a_reorg_that_changes_the_beacon_asks_it_again(site: Any) -> None:
    from coordinator.reaudits import ask_again

    submission_id = site.accept()
    (work,) = drawn_again(site, submission_id)
    with site.coordinator.writing() as session:
        ask_again(session, work.epoch)
    assert site.assignments() == []
    with site.coordinator.reading() as session:
        assert session.get_one(ReauditRow, submission_id).state == ReauditState.WAITING
    assert [one.seat for one in turn(site, submission_id)] == [work.seat]
