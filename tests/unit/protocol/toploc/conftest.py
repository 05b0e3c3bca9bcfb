"""Both paths of TOPLOC, for tests that are to hold on either."""

from __future__ import annotations

import pytest

from protocol import kernels


@pytest.fixture(params=["kernels", "plain"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs by compiled kernels, then by plain numpy."""
    name: str = request.param
    monkeypatch.setenv(kernels.VARIABLE, name)
    return name
