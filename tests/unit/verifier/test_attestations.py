"""A seat signs for earnings that it has recomputed, and for no others."""

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from protocol.api import EarningsStatement, ProviderEarnings
from protocol.errors import VerificationFailed
from protocol.merkle.standard import earnings_tree
from protocol.signing import Signer, SigningDomain
from verifier.attest import attestation, can_attest
from verifier.history import History

ALICE, BOB = "0x" + "a1" * 20, "0x" + "b0" * 20


def statement(earned: dict[str, int], epoch: int = 0, **changes: Any) -> EarningsStatement:
    honest = EarningsStatement(
        pool_id=1,
        epoch=epoch,
        root=earnings_tree(earned).root,
        total_wei=sum(earned.values()),
        accounts=tuple(ProviderEarnings(account=a, cumulative_wei=n) for a, n in sorted(earned.items())),
    )
    return honest.model_copy(update=changes)


@pytest.fixture
def history(store: sqlite3.Connection, chain: Any, log: Any) -> History:
    log.append("submission.accepted", "0x" + "5b" * 32, payments=[[ALICE, "7"], [BOB, "2"]])
    log.append("submission.accepted", "0x" + "5c" * 32, payments=[[ALICE, "5"]])
    log.anchor(chain)
    history = History(store)
    history.follow(chain.heads(0), log.read)
    return history


def test_the_right_root_is_signed(
    history: History, make_signer: Callable[[int], Signer], domain: SigningDomain
) -> None:
    signed = attestation(statement({ALICE: 12, BOB: 2}), 3, history, make_signer(5), domain)
    message = signed.check(make_signer(5).address, domain)
    assert (message.seat, message.total_wei, message.epoch) == (3, 14, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        statement({ALICE: 13, BOB: 1}),
        statement({ALICE: 12}),
        statement({ALICE: 12, BOB: 2}, root="0x" + "00" * 32),
        statement({ALICE: 12, BOB: 2}, total_wei=15),
    ],
)
def test_a_wrong_root_or_total_is_not(
    history: History, make_signer: Callable[[int], Signer], domain: SigningDomain, wrong: EarningsStatement
) -> None:
    with pytest.raises(VerificationFailed, match="aren't those of the log"):
        attestation(wrong, 3, history, make_signer(5), domain)


def test_a_statement_past_the_checked_log_has_to_wait(history: History) -> None:
    assert can_attest(statement({ALICE: 12, BOB: 2}), history)
    assert not can_attest(statement({ALICE: 12, BOB: 2}, epoch=1), history)
