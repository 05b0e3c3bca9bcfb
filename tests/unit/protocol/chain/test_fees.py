"""Fees: enough for six full blocks, raised by what nodes ask of a replacement, and never past the limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.chain.fees import GWEI, FeePolicy
from protocol.chain.transaction import Transaction

CALL = Transaction(31337, 4, 0, 0, 21_000, "0x" + "ab" * 20)


def test_a_first_fee_is_twice_the_base_fee_and_the_tip() -> None:
    policy = FeePolicy(tip_wei=3, max_fee_wei=100)
    priced = policy.priced(CALL, 20)
    assert (priced.max_fee_wei, priced.max_priority_fee_wei) == (43, 3)
    assert policy.priced(CALL, 80).max_fee_wei == 100
    tiny = FeePolicy(tip_wei=3, max_fee_wei=2).priced(CALL, 80)
    assert (tiny.max_fee_wei, tiny.max_priority_fee_wei) == (2, 2)


@given(st.integers(1, 10**12), st.integers(1, 10**12), st.integers(0, 10**12))
def test_a_raise_is_what_nodes_ask_for_or_nothing(fee: int, tip: int, base_fee: int) -> None:
    policy = FeePolicy()
    old = Transaction(31337, 4, min(tip, fee), fee, 21_000, "0x" + "ab" * 20)
    new = policy.raised(old, base_fee)
    assert new.max_fee_wei <= max(policy.max_fee_wei, fee)
    if new != old:
        assert 100 * new.max_fee_wei >= 110 * old.max_fee_wei
        assert 100 * new.max_priority_fee_wei >= 110 * old.max_priority_fee_wei
        assert new.max_fee_wei >= new.max_priority_fee_wei


def test_a_stuck_transaction_follows_the_base_fee() -> None:
    old = FeePolicy().priced(CALL, 10 * GWEI)
    assert FeePolicy().raised(old, 100 * GWEI).max_fee_wei == 201 * GWEI


def test_at_the_limit_the_same_transaction_is_sent_again() -> None:
    policy = FeePolicy(max_fee_wei=22)
    old = Transaction(31337, 4, 1, 20, 21_000, "0x" + "ab" * 20)
    assert policy.raised(old, 1) is old
