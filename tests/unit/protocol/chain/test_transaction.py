"""Our transactions against eth_account's."""

from collections.abc import Callable

import pytest
from eth_account import Account
from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical import from_hex0x, hex0x
from protocol.chain.transaction import Transaction
from protocol.errors import UsageError
from protocol.signing import Signer, checksummed

SECRET = b"\x11" * 32
TO = "0x" + "ab" * 20

transactions = st.builds(
    Transaction,
    chain_id=st.integers(1, 2**32),
    nonce=st.integers(0, 2**32),
    max_priority_fee_wei=st.integers(0, 2**40),
    max_fee_wei=st.integers(2**40, 2**60),
    gas_limit=st.integers(21_000, 2**32),
    to=st.sampled_from([TO, None]),
    value_wei=st.integers(0, 2**96),
    data=st.binary(max_size=200),
)


@given(transactions)
def test_bytes_and_hash_are_eth_accounts(transaction: Transaction) -> None:
    signed = transaction.sign(Signer(SECRET))
    theirs = Account.sign_transaction(
        {
            "chainId": transaction.chain_id,
            "nonce": transaction.nonce,
            "maxPriorityFeePerGas": transaction.max_priority_fee_wei,
            "maxFeePerGas": transaction.max_fee_wei,
            "gas": transaction.gas_limit,
            "to": checksummed(transaction.to) if transaction.to else b"",
            "value": transaction.value_wei,
            "data": transaction.data,
        },
        SECRET,
    )
    assert signed.raw == hex0x(theirs.raw_transaction)
    assert Transaction.parse(from_hex0x(signed.raw)) == transaction
    assert signed.transaction_hash == hex0x(theirs.hash)


def test_the_sender_is_recovered_by_eth_account(make_signer: Callable[[int], Signer]) -> None:
    signed = Transaction(31337, 0, 1, 2, 21_000, TO).sign(make_signer(5))
    assert Account.recover_transaction(signed.raw).lower() == signed.sender == make_signer(5).address


@pytest.mark.parametrize("raw", [b"", b"\x01\xc0", b"\x02", b"\x02\xc0", b"\x02\x80", b"\x02\xc1\x01", b"\xff" * 40])
def test_other_bytes_are_no_transaction(raw: bytes) -> None:
    with pytest.raises(UsageError):
        Transaction.parse(raw)
