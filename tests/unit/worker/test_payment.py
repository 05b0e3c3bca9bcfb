"""Where the money of a submission stands, case by case."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protocol.api import SettlingView, Standing
from protocol.chain.cases import CaseState
from protocol.reasons import Outcome
from worker.account import Account, Case, Root
from worker.payment import Payment, PaymentState, payment_of

NOW = 1_000


def view(amount_wei: int | None, standing: Standing = Standing.ACCEPTED, outcomes: tuple[Outcome, ...] = ()) -> Any:
    settling = None if amount_wei is None else SettlingView(log_index=1, epoch=3, amount_wei=amount_wei)
    verdicts = [SimpleNamespace(verdict=SimpleNamespace(message=SimpleNamespace(outcome=o))) for o in outcomes]
    return SimpleNamespace(settling=settling, standing=standing, verdicts=verdicts)


def account(claimed_wei: int = 0, withheld_wei: int = 0, *roots: Root) -> Account:
    return Account(NOW, claimed_wei, withheld_wei, roots)


def case(state: CaseState, deadline: int = NOW + 5) -> Case:
    return Case(state, held_wei=50, slashed_wei=40, deadline=deadline, deadline_in_seconds=max(0, deadline - NOW))


OLD, COVERING, NEWER = Root(2, NOW - 9, 30), Root(4, NOW - 1, 100), Root(6, NOW + 9, 200)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (payment_of(view(None, Standing.RECEIVED), account(), None), "waiting_for_verdicts"),
        (payment_of(view(None, Standing.REORGED), account(), None), "dropped"),
        (payment_of(view(0, Standing.REJECTED), account(), None), "dropped"),
        (payment_of(view(70), None, None), "accepted"),
        (payment_of(view(70), account(30, 0, OLD), None), "waiting_for_earnings_root"),
        (payment_of(view(70), account(30, 0, OLD, NEWER), None), "claimable_later"),
        (payment_of(view(70), account(30, 0, OLD, COVERING, NEWER), None), "claimable"),
        (payment_of(view(70), account(100, 0, OLD, COVERING, NEWER), None), "paid"),
        (payment_of(view(70), account(80, 20, COVERING), None), "paid"),
        (payment_of(view(70), account(0, 100, COVERING), None), "withheld"),
        (payment_of(view(0), account(), case(CaseState.ACCUSED)), "accused"),
        (payment_of(view(0), account(), case(CaseState.APPEALED)), "before_jury"),
        (payment_of(view(70), account(), case(CaseState.CHALLENGED)), "before_jury"),
        (payment_of(view(70), account(), case(CaseState.UPHELD)), "slashed"),
        (payment_of(view(0), account(), case(CaseState.LAPSED)), "dropped"),
        (payment_of(view(70), account(100, 0, COVERING), case(CaseState.OVERTURNED)), "paid"),
        (payment_of(None, None, None), "unknown"),
        (payment_of(None, None, case(CaseState.UPHELD)), "slashed"),
    ],
)
def test_each_way_has_its_word(found: Payment, state: str) -> None:
    assert found.state.value == state


def test_no_two_states_read_alike() -> None:
    words = [Payment(state=state, amount_wei=1).words for state in PaymentState]
    assert len(set(words)) == len(words)


def test_dropped_work_says_whether_an_accusation_may_follow() -> None:
    dropped = payment_of(view(0, Standing.REJECTED, (Outcome.DROP,)), None, None)
    assert dropped.words == "dropped"
    forged = payment_of(view(0, Standing.REJECTED, (Outcome.SLASH, Outcome.DROP, Outcome.SLASH)), None, None)
    assert forged.words == "dropped, 2 verdicts say slash: an accusation may follow"


def test_an_appeal_is_offered_as_long_as_it_is_possible() -> None:
    accused = payment_of(None, None, case(CaseState.ACCUSED))
    assert "until 1970-01-01 00:16:45 UTC, 5 s from now" in accused.todo
    late = payment_of(None, None, case(CaseState.ACCUSED, NOW - 1))
    assert late.todo.startswith("nothing: the appeal was possible until")
    jury = payment_of(None, None, case(CaseState.APPEALED))
    assert jury.todo == "wait for the jury until 1970-01-01 00:16:45 UTC"
    assert payment_of(None, None, case(CaseState.UPHELD)).todo.startswith("nothing: a slash is final")
