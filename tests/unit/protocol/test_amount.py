"""Amounts: what is written is what is read back, and what isn't exact is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.amount import MAX_WEI, format_amount, parse_amount
from protocol.errors import UsageError


@given(st.integers(min_value=0, max_value=10**38))
def test_every_amount_comes_back_in_either_spelling(wei: int) -> None:
    assert parse_amount(format_amount(wei), "--amount") == wei
    assert parse_amount(f"{wei}wei", "--amount") == parse_amount(f"{wei} wei", "--amount") == wei


@pytest.mark.parametrize(
    "text", ["-1", "1e3", "0.0000000000000000001", "1,5", "many", "", "wei", "1.5wei", f"{MAX_WEI + 1}wei"]
)
def test_what_is_not_exact_or_too_much_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_amount(text, "--amount")
