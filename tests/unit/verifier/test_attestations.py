"""A seat signs for earnings that it has recomputed and that somebody has earned, and for no others."""

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from protocol.api import EarningsStatement, ProviderEarnings
from protocol.errors import VerificationFailed
from protocol.merkle.standard import earnings_tree
from protocol.reasons import Outcome
from protocol.signing import Signer, SigningDomain
from verifier.attest import attestation, can_attest, check_statement
from verifier.history import History

ALICE, BOB, EVE = "0x" + "a1" * 20, "0x" + "b0" * 20, "0x" + "ee" * 20
FIRST, SECOND = "0x" + "5b" * 32, "0x" + "5c" * 32
EARNED = {ALICE: 12, BOB: 24}
NOTHING_ATTESTED = -1


def statement(earned: dict[str, int], epoch: int = 0, **changes: Any) -> EarningsStatement:
    honest = EarningsStatement(
        pool_id=1,
        epoch=epoch,
        root=earnings_tree(earned).root,
        total_wei=sum(earned.values()),
        accounts=tuple(ProviderEarnings(account=a, cumulative_wei=n) for a, n in sorted(earned.items())),
    )
    return honest.model_copy(update=changes)


def receive(log: Any, submission_id: str, num_units: int, *outcomes: Outcome, in_time: bool = True) -> None:
    """Alice's submission, judged by Bob (and by others after him)."""
    log.append("submission.received", submission_id, provider=ALICE, num_units=num_units)
    for number, outcome in enumerate(outcomes):
        validator = BOB if number == 0 else f"0x{number:040x}"
        log.append("verdict.revealed", submission_id, validator=validator, outcome=int(outcome), in_time=in_time)


def pay(
    log: Any, submission_id: str, num_units: int, payments: dict[str, int], kind: str = "submission.accepted"
) -> None:
    log.append(kind, submission_id, num_units=num_units, payments=[[a, str(n)] for a, n in payments.items()])


@pytest.fixture
def history(store: sqlite3.Connection) -> History:
    return History(store)


@pytest.fixture
def settled(history: History, chain: Any, log: Any) -> History:
    """Two accepted submissions of 7 and 5 units at 1 a unit, judged by Bob at 2 a unit."""
    for submission_id, num_units in ((FIRST, 7), (SECOND, 5)):
        receive(log, submission_id, num_units, Outcome.ACCEPT)
        pay(log, submission_id, num_units, {ALICE: num_units, BOB: 2 * num_units})
    log.anchor(chain)
    history.follow(chain.heads(0), log.read)
    return history


def test_the_right_root_is_signed(
    settled: History, chain: Any, make_signer: Callable[[int], Signer], domain: SigningDomain
) -> None:
    right = statement(EARNED)
    check_statement(right, settled, chain, NOTHING_ATTESTED)
    message = attestation(right, 3, make_signer(5), domain).check(make_signer(5).address, domain)
    assert (message.seat, message.total_wei, message.epoch) == (3, 36, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        statement({ALICE: 13, BOB: 23}),
        statement({ALICE: 12}),
        statement(EARNED, root="0x" + "00" * 32),
        statement(EARNED, total_wei=37),
    ],
)
def test_a_wrong_root_or_total_is_not(settled: History, chain: Any, wrong: EarningsStatement) -> None:
    with pytest.raises(VerificationFailed, match="aren't those of the log"):
        check_statement(wrong, settled, chain, NOTHING_ATTESTED)


def test_a_statement_past_the_checked_log_has_to_wait(settled: History) -> None:
    assert can_attest(statement(EARNED), settled)
    assert not can_attest(statement(EARNED, epoch=1), settled)


def check_log(history: History, chain: Any, log: Any, attested_epoch: int = NOTHING_ATTESTED) -> None:
    """The statement that adds up to the log, whatever the log pays for."""
    log.anchor(chain)
    history.follow(chain.heads(history.num_epochs), log.read)
    epoch = history.num_epochs - 1
    earned = {a: n for a, n in history.payments.earnings(epoch).items() if n}
    check_statement(statement(earned, epoch), history, chain, attested_epoch)


def lie_pay_for_nothing(log: Any) -> None:
    log.append("group.unused", FIRST, payments=[[EVE, "1000000"]])


def lie_never_received(log: Any) -> None:
    pay(log, FIRST, 7, {ALICE: 7})


def lie_twice(log: Any) -> None:
    receive(log, FIRST, 7, Outcome.ACCEPT)
    pay(log, FIRST, 7, {ALICE: 7})
    pay(log, FIRST, 7, {ALICE: 7})


def lie_stranger(log: Any) -> None:
    receive(log, FIRST, 7, Outcome.ACCEPT)
    pay(log, FIRST, 7, {ALICE: 7, EVE: 14})


def lie_units(log: Any) -> None:
    receive(log, FIRST, 7, Outcome.ACCEPT)
    pay(log, FIRST, 8, {ALICE: 8})


def lie_price(log: Any) -> None:
    receive(log, FIRST, 7, Outcome.ACCEPT)
    pay(log, FIRST, 7, {ALICE: 70})


def lie_unjudged(log: Any) -> None:
    receive(log, FIRST, 7)
    pay(log, FIRST, 7, {ALICE: 7})


def lie_against_the_verdicts(log: Any) -> None:
    receive(log, FIRST, 7, Outcome.DROP, Outcome.SLASH, Outcome.ACCEPT)
    pay(log, FIRST, 7, {ALICE: 7})


def lie_paid_though_rejected(log: Any) -> None:
    receive(log, FIRST, 7, Outcome.DROP)
    pay(log, FIRST, 7, {ALICE: 7}, "submission.rejected")


def lie_paid_though_late(log: Any) -> None:
    receive(log, FIRST, 7, Outcome.ACCEPT, in_time=False)
    pay(log, FIRST, 7, {ALICE: 7, BOB: 14})


@pytest.mark.parametrize(
    "lie",
    [
        lie_pay_for_nothing,
        lie_never_received,
        lie_twice,
        lie_stranger,
        lie_units,
        lie_price,
        lie_unjudged,
        lie_against_the_verdicts,
        lie_paid_though_rejected,
        lie_paid_though_late,
    ],
)
def test_what_nobody_earned_is_not_signed_for_though_it_adds_up(
    history: History, chain: Any, log: Any, lie: Callable[[Any], None]
) -> None:
    lie(log)
    with pytest.raises(VerificationFailed, match="isn't earned"):
        check_log(history, chain, log)


def hostile_no_units(log: Any) -> None:
    log.append("submission.accepted", FIRST, payments=[[EVE, "5"]])


def hostile_zero_units(log: Any) -> None:
    receive(log, FIRST, 0, Outcome.ACCEPT)
    pay(log, FIRST, 0, {ALICE: 5})


def hostile_amount(log: Any) -> None:
    receive(log, FIRST, 7, Outcome.ACCEPT)
    log.append("submission.accepted", FIRST, num_units=7, payments=[[ALICE, "seven"]])


def hostile_payments(log: Any) -> None:
    log.append("task.leased", FIRST, payments={"a": 1})


def hostile_verdict(log: Any) -> None:
    log.append("verdict.revealed", FIRST, validator=7)


def hostile_twice_in_one(log: Any) -> None:
    receive(log, FIRST, 7, Outcome.ACCEPT)
    log.append("submission.accepted", FIRST, num_units=7, payments=[[ALICE, "7"], [ALICE, "7"]])


@pytest.mark.parametrize(
    "hostile",
    [
        hostile_no_units,
        hostile_zero_units,
        hostile_amount,
        hostile_payments,
        hostile_verdict,
        hostile_twice_in_one,
    ],
)
def test_an_event_that_makes_no_sense_ends_nothing_and_is_not_signed_for(
    history: History, chain: Any, log: Any, hostile: Callable[[Any], None]
) -> None:
    receive(log, SECOND, 5, Outcome.ACCEPT)
    pay(log, SECOND, 5, {ALICE: 5})
    hostile(log)
    with pytest.raises(VerificationFailed, match="isn't earned"):
        check_log(history, chain, log)


def test_validators_are_paid_for_rejecting_as_well(history: History, chain: Any, log: Any) -> None:
    receive(log, FIRST, 7, Outcome.SLASH, Outcome.DROP)
    pay(log, FIRST, 7, {BOB: 14, f"0x{1:040x}": 14}, "submission.rejected")
    check_log(history, chain, log)
