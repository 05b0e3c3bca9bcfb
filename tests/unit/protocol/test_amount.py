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


def test_more_places_than_there_are_is_said_to_be_that() -> None:
    with pytest.raises(UsageError) as error:
        parse_amount("0.1234567890123456789", "--amount")
    assert "more than 18 decimal places" in error.value.why and "18 places at most" in error.value.todo
    with pytest.raises(UsageError) as error:
        parse_amount("many", "--amount")
    assert "decimal" not in error.value.why


@pytest.mark.parametrize(
    "text", ["-1", "1e3", "0.0000000000000000001", "1,5", "many", "", "wei", "1.5wei", f"{MAX_WEI + 1}wei"]
)
def test_what_is_not_exact_or_too_much_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_amount(text, "--amount")
