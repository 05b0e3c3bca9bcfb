"""Addresses as people copy them: a digit that is wrong is seen by the capitals (EIP-55)."""

from __future__ import annotations

import pytest

from protocol.address import parse_address
from protocol.config import Address, RoleConfig, load_config
from protocol.errors import ConfigError, UsageError

EIP_55 = (
    "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
    "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
    "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
    "0x52908400098527886E0F7030069857D2E4169EE7",
    "0xde709f2102306220921060314715629080e2fb77",
)
"""The EIP's test cases."""


class Named(RoleConfig):
    """A configuration that names an account."""

    account: Address


@pytest.mark.parametrize("address", EIP_55)
def test_an_address_may_be_spelt_with_its_checksum_or_without(address: str) -> None:
    small = address.lower()
    for spelt in (address, small, "0x" + address[2:].upper()):
        assert parse_address(spelt, "--provider") == small
        assert load_config(Named, "worker", environment={}, flags={"account": spelt}).account == small


@pytest.mark.parametrize("address", EIP_55[:4])
def test_a_wrong_checksum_is_refused_wherever_an_address_is_read(address: str) -> None:
    other = "0" if address[-1] != "0" else "1"
    for spelt in (address[:-1] + other, address[:2] + address[2:].swapcase()):
        with pytest.raises(UsageError) as error:
            parse_address(spelt, "--provider")
        assert spelt in error.value.why and "EIP-55" in error.value.why
        with pytest.raises(ConfigError, match="account") as wrong:
            load_config(Named, "worker", environment={}, flags={"account": spelt})
        assert "EIP-55" in wrong.value.why and spelt in wrong.value.why
