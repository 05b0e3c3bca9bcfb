"""The addresses that health and metrics may be served at; what is served is tested with the roles."""

from __future__ import annotations

import pytest

from protocol.errors import ConfigError
from protocol.health_server import host_and_port


@pytest.mark.parametrize("address", ["9464", "localhost", "127.0.0.1:http", "127.0.0.1:70000", ":9464", "127.0.0.1:²"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="no address"):
        host_and_port(address)


def test_addresses_of_both_kinds_are_taken() -> None:
    assert host_and_port("127.0.0.1:9464") == ("127.0.0.1", 9464)
    assert host_and_port("[::1]:9464") == ("::1", 9464)
