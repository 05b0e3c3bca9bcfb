"""Authorities are loaded where they are needed, and nowhere is TLS taken without one."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pytest

from protocol.chain.rpc import JsonRpc
from protocol.client import CoordinatorClient
from protocol.tls import trusted_for

CLIENTS: list[Callable[[str], JsonRpc | CoordinatorClient]] = [JsonRpc, CoordinatorClient]


@pytest.mark.parametrize("make_client", CLIENTS)
@pytest.mark.parametrize(("url", "is_loaded"), [("http://node.example:8545", False), ("HTTPS://node.example", True)])
def test_authorities_are_loaded_for_https_alone(
    make_client: Callable[[str], JsonRpc | CoordinatorClient],
    url: str,
    is_loaded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded, honest = list[object](), ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda *a, **b: (loaded.append(a), honest(*a, **b))[1])
    make_client(url).close()
    assert bool(loaded) is is_loaded


def test_tls_that_comes_in_all_the_same_is_believed_by_nobody() -> None:
    context = trusted_for("http://node.example")
    assert isinstance(context, ssl.SSLContext)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.cert_store_stats()["x509_ca"] == 0
    assert trusted_for("https://node.example") is True
