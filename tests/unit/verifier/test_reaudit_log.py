"""Re-audits in the checked log: which were due, what their ends may pay, and what is said of stamps."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.draw import BPS, is_reaudited
from protocol.errors import VerificationFailed
from protocol.reasons import Outcome
from protocol.signing import Signer
from verifier.attest import check_reaudits, check_withheld
from verifier.history import History
from verifier.reaudits import GRACE_EPOCHS, ReauditCounts, Reaudits

PROVIDER, FIRST, AGAIN, OTHER = ("0x" + byte * 20 for byte in ("a1", "b0", "c0", "d0"))
SUBMISSION = "0x" + "5b" * 32
BEACON = "0x" + "be" * 32


@pytest.fixture
def history(store: sqlite3.Connection) -> History:
    return History(store)


@pytest.fixture
def reaudits(store: sqlite3.Connection, history: History) -> Reaudits:
    return Reaudits(store, history.payments)


@pytest.fixture
def settled(chain: Any, log: Any) -> None:
    """Received, judged by FIRST, accepted and paid; anchored in epoch 0; every submission is judged again."""
    log.append("submission.received", SUBMISSION, provider=PROVIDER, num_units=7)
    reveal(log, FIRST)
    log.append("submission.accepted", SUBMISSION, num_units=7, payments=[[PROVIDER, "7"], [FIRST, "14"]])
    log.anchor(chain)
    chain.beacons[0] = BEACON
    chain.pool = replace(chain.pool, reaudit_bps=BPS)


def reveal(
    log: Any, validator: str, outcome: Outcome = Outcome.ACCEPT, round_number: int = 0, reviews: Any = (), **data: Any
) -> None:
    values = {"round": round_number, "validator": validator, "outcome": int(outcome), "in_time": True}
    log.append("verdict.revealed", SUBMISSION, **(values | data), stamp_reviews=[list(review) for review in reviews])


def close(
    log: Any, payments: dict[str, int], kind: str = "agreed", accepted: bool | None = True, units: int = 7
) -> None:
    paid = [[account, str(amount)] for account, amount in payments.items()]
    log.append(f"reaudit.{kind}", SUBMISSION, epoch=0, accepted=accepted, num_units=units, payments=paid)


def faults(history: History, chain: Any, log: Any) -> list[str]:
    log.anchor(chain)
    history.follow(chain.heads(history.num_epochs), log.read)
    return [fault.detail for fault in history.payments.faults(history.num_epochs)]


def test_whoever_agreed_in_round_1_is_paid(history: History, chain: Any, log: Any, settled: None) -> None:
    log.append("reaudit.drawn", SUBMISSION, epoch=0)
    reveal(log, AGAIN, round_number=1)
    close(log, {AGAIN: 14})
    assert faults(history, chain, log) == []
    assert history.payments.earnings(9) == {PROVIDER: 7, FIRST: 14, AGAIN: 14}


@pytest.mark.parametrize(
    ("payments", "changes"),
    [
        ({OTHER: 14}, {}),
        ({FIRST: 14}, {}),
        ({PROVIDER: 7}, {}),
        ({AGAIN: 13}, {}),
        ({AGAIN: 14}, {"kind": "disagreed"}),
        ({AGAIN: 14}, {"kind": "disagreed", "accepted": False}),
        ({AGAIN: 14}, {"kind": "undecided", "accepted": None}),
        ({AGAIN: 16}, {"units": 8}),
    ],
)
def test_any_other_payment_is_a_fault(
    history: History, chain: Any, log: Any, settled: None, payments: dict[str, int], changes: dict[str, Any]
) -> None:
    log.append("reaudit.drawn", SUBMISSION, epoch=0)
    reveal(log, AGAIN, round_number=1)
    close(log, payments, **changes)
    assert len(faults(history, chain, log)) == 1


def test_a_re_audit_pays_once_and_only_if_it_began(history: History, chain: Any, log: Any, settled: None) -> None:
    reveal(log, AGAIN, round_number=1)
    close(log, {AGAIN: 14})
    log.append("reaudit.drawn", SUBMISSION, epoch=0)
    close(log, {AGAIN: 14})
    close(log, {AGAIN: 14})
    assert faults(history, chain, log) == ["a re-audit ends that never began"] * 2


def test_each_turn_pays_whom_no_turn_has_paid(history: History, chain: Any, log: Any, settled: None) -> None:
    log.append("reaudit.drawn", SUBMISSION, epoch=0)
    reveal(log, AGAIN, round_number=1)
    close(log, {AGAIN: 14})
    assert faults(history, chain, log) == []
    assert history.payments.closed_reaudits(0, 1) == [(SUBMISSION, 0)]
    log.append("reaudit.drawn", SUBMISSION, epoch=1)
    reveal(log, OTHER, round_number=1)
    close(log, {OTHER: 14})
    assert faults(history, chain, log) == []
    assert history.payments.closed_reaudits(1, 2) == [(SUBMISSION, 1)]
    log.append("reaudit.drawn", SUBMISSION, epoch=2)
    close(log, {AGAIN: 14})
    assert len(faults(history, chain, log)) == 1


def test_a_turn_that_the_last_ends_beacon_did_not_ask_for_gets_no_signature(
    history: History, chain: Any, log: Any, settled: None
) -> None:
    chain.pool = replace(chain.pool, reaudit_bps=5_000)
    seen: dict[bool, str] = {}
    for number in range(64):
        beacon = f"0x{number:064x}"
        seen.setdefault(is_reaudited(beacon, SUBMISSION, 5_000), beacon)
    chain.beacons |= {0: seen[True], 1: seen[True]}
    for epoch, validator in enumerate((AGAIN, OTHER)):
        log.append("reaudit.drawn", SUBMISSION, epoch=epoch)
        reveal(log, validator, round_number=1)
        close(log, {validator: 14})
        assert faults(history, chain, log) == []
    check_reaudits(2, history.payments, chain, -1)
    chain.beacons[1] = seen[False]
    with pytest.raises(VerificationFailed, match="wasn't due"):
        check_reaudits(2, history.payments, chain, -1)
    log.append("chain.reorged", fork_block=7)  # the beacon that asked may have been another
    assert faults(history, chain, log) == []
    check_reaudits(2, history.payments, chain, -1)


def test_a_late_verdict_or_a_disputed_stamp_is_not_paid(history: History, chain: Any, log: Any, settled: None) -> None:
    log.append("reaudit.drawn", SUBMISSION, epoch=0)
    reveal(log, AGAIN, round_number=1)
    reveal(log, OTHER, round_number=1, reviews=[(AGAIN, 1, False)])
    close(log, {AGAIN: 14, OTHER: 14})
    assert len(faults(history, chain, log)) == 1
    assert history.payments.opinions.num_disputed_stamps(AGAIN) == 1


def test_a_stamp_disputed_before_the_settling_is_not_paid_in_round_0(history: History, chain: Any, log: Any) -> None:
    log.append("submission.received", SUBMISSION, provider=PROVIDER, num_units=7)
    reveal(log, FIRST)
    reveal(log, AGAIN, reviews=[(FIRST, 0, False), (AGAIN, 0, True)])
    log.append("submission.accepted", SUBMISSION, num_units=7, payments=[[PROVIDER, "7"], [FIRST, "14"]])
    assert len(faults(history, chain, log)) == 1
    assert history.payments.opinions.disputed(SUBMISSION, 0) == {FIRST}


def test_ones_own_word_for_a_stamp_does_not_count(history: History, chain: Any, log: Any, settled: None) -> None:
    reveal(log, AGAIN, round_number=1, reviews=[(FIRST, 0, False), (AGAIN, 1, False)])
    assert faults(history, chain, log) == []
    assert history.payments.opinions.num_disputed_stamps(AGAIN) == 0


def test_the_settling_that_counts_is_the_first(history: History, chain: Any, log: Any, settled: None) -> None:
    log.append("reaudit.drawn", SUBMISSION, epoch=0)
    reveal(log, AGAIN, Outcome.DROP, round_number=1)
    log.append("submission.challenged", SUBMISSION)
    reveal(log, OTHER, round_number=1)
    close(log, {OTHER: 14})
    log.append("submission.accepted", SUBMISSION, num_units=7, payments=[])
    assert faults(history, chain, log) == []
    settling = history.payments.settling(SUBMISSION)
    assert settling is not None and (settling.epoch, settling.accepted) == (0, True)


def test_due_re_audits_are_counted_and_so_is_what_became_of_them(
    history: History, reaudits: Reaudits, chain: Any, log: Any, settled: None
) -> None:
    history.follow(chain.heads(0), log.read)
    reaudits.follow(chain)
    assert reaudits.counts() == ReauditCounts(due=1, drawn=0, agreed=0, disagreed=0, undecided=0)
    log.append("reaudit.drawn", SUBMISSION, epoch=0)
    reveal(log, AGAIN, round_number=1)
    close(log, {AGAIN: 14})
    assert faults(history, chain, log) == []
    reaudits.follow(chain)
    assert reaudits.counts() == ReauditCounts(due=1, drawn=1, agreed=1, disagreed=0, undecided=0)


def test_what_is_not_known_yet_or_not_picked_is_not_due(
    history: History, reaudits: Reaudits, chain: Any, log: Any, settled: None
) -> None:
    history.follow(chain.heads(0), log.read)
    beacon = chain.beacons.pop(0)
    reaudits.follow(chain)
    assert reaudits.counts().due == 0
    chain.beacons[0], chain.pool = beacon, replace(chain.pool, reaudit_bps=0)
    reaudits.follow(chain)
    assert reaudits.counts().due == 0


def test_a_due_re_audit_that_is_not_drawn_is_told_once(
    history: History, reaudits: Reaudits, chain: Any, log: Any, settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, Any]] = []
    logger = type("Logger", (), {"warning": lambda self, event, **values: told.append((event, values))})
    monkeypatch.setattr("verifier.reaudits.get_logger", logger)
    history.follow(chain.heads(0), log.read)
    for _ in range(GRACE_EPOCHS + 2):
        reaudits.follow(chain)
        log.append("epoch.closed")
        log.anchor(chain)
    assert told == [("reaudit.withheld", {"submission_id": SUBMISSION})]


def test_earnings_over_an_undue_re_audit_get_no_signature(
    history: History, chain: Any, log: Any, settled: None
) -> None:
    log.append("reaudit.drawn", SUBMISSION, epoch=0)
    reveal(log, AGAIN, round_number=1)
    close(log, {AGAIN: 14})
    assert faults(history, chain, log) == []
    check_reaudits(1, history.payments, chain, -1)
    chain.pool = replace(chain.pool, reaudit_bps=0)
    with pytest.raises(VerificationFailed, match="wasn't due"):
        check_reaudits(1, history.payments, chain, -1)
    check_reaudits(1, history.payments, chain, 1)  # what was attested before was looked at then


def test_earnings_over_a_withheld_re_audit_get_no_signature_until_it_is_drawn(
    history: History, reaudits: Reaudits, chain: Any, log: Any, settled: None
) -> None:
    def epochs_pass(number: int) -> None:
        for _ in range(number):
            log.append("epoch.closed")
            log.anchor(chain)
        history.follow(chain.heads(history.num_epochs), log.read)
        reaudits.follow(chain)

    epochs_pass(GRACE_EPOCHS - 1)
    check_withheld(9, reaudits, chain)  # the coordinator has time
    epochs_pass(1)
    with pytest.raises(VerificationFailed, match="withholds re-audits"):
        check_withheld(0, reaudits, chain)
    check_withheld(-1, reaudits, chain)  # what was settled before it isn't concerned
    beacon, chain.beacons[0] = chain.beacons[0], "0x" + "00" * 32
    chain.pool = replace(chain.pool, reaudit_bps=1)
    check_withheld(0, reaudits, chain)  # after a reorg the beacon asks for others
    chain.beacons[0], chain.pool = beacon, replace(chain.pool, reaudit_bps=BPS)
    log.append("reaudit.drawn", SUBMISSION, epoch=0)
    epochs_pass(1)
    check_withheld(0, reaudits, chain)


def test_a_status_knows_whose_store_it_reads(
    history: History, reaudits: Reaudits, chain: Any, log: Any, settled: None, make_signer: Callable[[int], Signer]
) -> None:
    reveal(log, AGAIN, round_number=1, reviews=[(FIRST, 0, False)])
    assert faults(history, chain, log) == []
    assert reaudits.num_disputed_stamps() == 0
    reaudits.remember_validator(FIRST)
    assert reaudits.num_disputed_stamps() == 1
