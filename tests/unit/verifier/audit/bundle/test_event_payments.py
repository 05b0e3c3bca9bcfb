"""What a settling event pays, as an audit reads it: each account once, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import VerificationFailed
from tests.unit.verifier.conftest import LogTable
from verifier.audit.bundle.history import event_payments

A, B = "0x" + "a1" * 20, "0x" + "b0" * 20


def paid(payments: Any) -> dict[str, int]:
    return event_payments(LogTable().append("submission.accepted", "0x" + "5b" * 32, payments=payments))


def test_each_account_has_its_amount() -> None:
    assert paid([[A, "7"], [B, "5"]]) == {A: 7, B: 5} and paid([]) == {}


@pytest.mark.parametrize("payments", [[[A, "1000"], [A, "7"]], [[A, "7"], [B, "5"], [A, "7"]]])
def test_an_account_that_is_paid_twice_is_a_fault(payments: Any) -> None:
    """The money counts both, and the audit mustn't see the last alone."""
    with pytest.raises(VerificationFailed, match="pays an account twice"):
        paid(payments)


@pytest.mark.parametrize("payments", [None, 7, "x", [[A]], [[A, "b"]], [7], {A: "7"}])
def test_what_cannot_be_read_is_a_fault(payments: Any) -> None:
    with pytest.raises(VerificationFailed, match="no readable payments"):
        paid(payments)
