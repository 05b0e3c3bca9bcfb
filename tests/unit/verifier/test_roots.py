"""A root is true if the log adds up to it and pays what was earned, at the prices that the work was leased at."""

import sqlite3
from typing import Any

import pytest

from protocol.chain.cases import DisputeRecord, Vote
from protocol.chain.terms import PriceTerms, in_force
from protocol.errors import VerificationFailed
from protocol.merkle.standard import earnings_tree
from protocol.reasons import Outcome
from protocol.wire import ZERO_ADDRESS
from tests.unit.verifier.test_attestations import ALICE, BOB, FIRST, SECOND, pay, receive
from verifier.attest import payment_faults
from verifier.history import History
from verifier.roots import judge_root

OLD, NEW = PriceTerms(0, 5, 2), PriceTerms(1_440, 1, 2)
"""The chain's epoch n is committed at 1,000 + 100 n, and a lease lasts 60: what came in during epoch 7 was leased at
the new terms, during epoch 3 at the old ones, in between at either."""


@pytest.fixture
def history(store: sqlite3.Connection) -> History:
    return History(store)


def paid(history: History, chain: Any, log: Any, received_epoch: int, price_wei: int, subject: str = FIRST) -> None:
    """Alice's 7 units, received in that epoch, and paid in the one after."""
    while history.num_epochs < received_epoch:
        anchor(history, chain, log)
    receive(log, subject, 7, Outcome.ACCEPT)
    anchor(history, chain, log)
    pay(log, subject, 7, {ALICE: 7 * price_wei, BOB: 14})
    anchor(history, chain, log)


def anchor(history: History, chain: Any, log: Any) -> None:
    log.append("epoch.closed")
    log.anchor(chain)
    history.follow(chain.heads(history.num_epochs), log.read)


def says(history: History, chain: Any, **changes: Any) -> Vote:
    """What a juror votes over the root that the log adds up to."""
    epoch = history.num_epochs - 1
    earned = {account: amount for account, amount in history.payments.earnings(epoch).items() if amount}
    root = {"root": earnings_tree(earned).root, "total_wei": sum(earned.values())}
    dispute = DisputeRecord(disputer=ALICE, epoch=epoch, bond_wei=1, coordinator=ZERO_ADDRESS, attesters=(), **root)
    return judge_root(DisputeRecord(**(dispute.__dict__ | changes)), history, chain)


@pytest.mark.parametrize(
    ("received_epoch", "price_wei", "vote"),
    [
        (3, 5, Vote.OVERTURN),
        (3, 1, Vote.UPHOLD),
        (5, 5, Vote.OVERTURN),
        (5, 1, Vote.OVERTURN),
        (7, 1, Vote.OVERTURN),
        (7, 5, Vote.UPHOLD),
        (7, 4, Vote.UPHOLD),
    ],
)
def test_a_price_is_that_of_when_the_work_was_leased(
    history: History, chain: Any, log: Any, received_epoch: int, price_wei: int, vote: Vote
) -> None:
    chain.terms = [OLD, NEW]
    paid(history, chain, log, received_epoch, price_wei)
    assert says(history, chain) is vote


def test_a_price_that_was_right_once_is_no_excuse_later(history: History, chain: Any, log: Any) -> None:
    chain.terms = [OLD, NEW]
    paid(history, chain, log, 3, 5)
    assert says(history, chain) is Vote.OVERTURN
    paid(history, chain, log, 8, 5, SECOND)
    assert says(history, chain) is Vote.UPHOLD


def test_what_nobody_can_dispute_any_more_is_not_asked_again(history: History, chain: Any, log: Any) -> None:
    paid(history, chain, log, 1, 3)
    assert says(history, chain) is Vote.UPHOLD
    chain.final_epoch = history.num_epochs - 1
    anchor(history, chain, log)
    assert says(history, chain) is Vote.OVERTURN
    assert payment_faults(history.num_epochs - 1, history.payments, chain, -1)


def test_a_validators_price_is_looked_at_too(history: History, chain: Any, log: Any) -> None:
    receive(log, FIRST, 7, Outcome.ACCEPT)
    pay(log, FIRST, 7, {ALICE: 7, BOB: 7 * 3})
    anchor(history, chain, log)
    assert says(history, chain) is Vote.UPHOLD
    chain.terms = [PriceTerms(0, 1, 3)]
    assert says(history, chain) is Vote.OVERTURN


def test_a_root_that_the_log_does_not_add_up_to_is_false(history: History, chain: Any, log: Any) -> None:
    paid(history, chain, log, 0, 1)
    assert says(history, chain) is Vote.OVERTURN
    assert says(history, chain, root="0x" + "66" * 32) is Vote.UPHOLD
    assert says(history, chain, total_wei=22) is Vote.UPHOLD


def test_re_audits_that_no_beacon_asked_for_are_no_earnings(history: History, chain: Any, log: Any) -> None:
    paid(history, chain, log, 0, 1)
    log.append("reaudit.drawn", FIRST)
    log.append("verdict.revealed", FIRST, round=1, validator=ALICE, outcome=int(Outcome.ACCEPT), in_time=True)
    log.append("reaudit.agreed", FIRST, accepted=True, num_units=7, payments=[[ALICE, "14"]])
    chain.beacons = dict.fromkeys(range(9), "0x" + "be" * 32)
    anchor(history, chain, log)
    assert says(history, chain) is Vote.UPHOLD
    chain.pool = chain.pool.__class__(**(chain.pool.__dict__ | {"reaudit_bps": 10_000}))
    assert says(history, chain) is Vote.OVERTURN


def test_fewer_verdicts_than_the_quorum_are_no_acceptance(history: History, chain: Any, log: Any) -> None:
    paid(history, chain, log, 0, 1)
    chain.pool = chain.pool.__class__(**(chain.pool.__dict__ | {"accept_quorum": 2}))
    assert says(history, chain) is Vote.UPHOLD


def test_a_log_that_does_not_reach_the_root_says_nothing(history: History, chain: Any, log: Any) -> None:
    paid(history, chain, log, 0, 1)
    with pytest.raises(VerificationFailed, match="doesn't reach"):
        says(history, chain, epoch=history.num_epochs)


def test_terms_are_in_force_until_the_next() -> None:
    third = PriceTerms(2_000, 9, 9)
    assert in_force([OLD, NEW, third], 1_439) == [OLD, NEW, third]
    assert in_force([OLD, NEW, third], 1_440) == [NEW, third]
    assert in_force([OLD, NEW, third], 1_000, 1_439) == [OLD]
    assert in_force([OLD, NEW, third], 1_439, 1_440) == [OLD, NEW]
    assert in_force([OLD, NEW, third], 5_000) == [third]
