"""Fixtures that every test may use: keys, a signing domain, one thread."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.signing import Signer, SigningDomain


@pytest.fixture
def make_signer() -> Callable[[int], Signer]:
    """Keys 1, 2, 3 …: test keys, of no value anywhere."""
    return lambda number: Signer(number.to_bytes(32, "big"))


@pytest.fixture
def domain() -> SigningDomain:
    return SigningDomain(chain_id=31337, contract="0x" + "11" * 20, salt="0x" + "22" * 32)
