"""The addresses that health and metrics may be served at; what is served is tested with the roles."""

from __future__ import annotations

import pytest

from protocol.errors import ConfigError
from protocol.health_server import HealthServer
from protocol.listen_address import host_and_port, why_not_free


@pytest.mark.parametrize("address", ["9464", "localhost", "127.0.0.1:http", "127.0.0.1:70000", ":9464", "127.0.0.1:²"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="no address"):
        host_and_port(address)


def test_addresses_of_both_kinds_are_taken() -> None:
    assert host_and_port("127.0.0.1:9464") == ("127.0.0.1", 9464)
    assert host_and_port("[::1]:9464") == ("::1", 9464)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_server_listens_on_either_kind_and_its_address_isnt_free_then(host: str) -> None:
    if why := why_not_free(f"{host}:0"):
        pytest.skip(f"this machine has no {host}: {why}")
    with HealthServer(f"{host}:0", lambda: pytest.fail("nobody asks"), object()) as server:
        address = f"{host}:{server.port}"
        assert why_not_free(address)
        with pytest.raises(ConfigError, match="can't be used"):
            HealthServer(address, lambda: pytest.fail("nobody asks"), object())
    assert not why_not_free(address)


def test_an_address_of_no_machine_here_is_not_free() -> None:
    assert why_not_free("192.0.2.1:9464")
