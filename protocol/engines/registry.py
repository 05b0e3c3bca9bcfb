"""Engines by the name that a configuration gives. Their libraries are imported for who asks for them."""

from __future__ import annotations

from typing import Literal

from protocol.engines.base import Engine

EngineName = Literal["torch"]


def make_engine(name: EngineName, *, max_batch: int) -> Engine:
    """An engine without weights that decodes up to `max_batch` rollouts together."""
    assert name == "torch"
    from protocol.engines.torch import TorchEngine

    return TorchEngine(max_batch)
