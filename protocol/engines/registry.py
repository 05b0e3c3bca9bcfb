"""Engines by the name that a configuration gives. Their libraries are imported for who asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.engines.names import Dtype, EngineName
from protocol.engines.vllm.options import VllmOptions

if TYPE_CHECKING:
    from protocol.engines.base import LiveEngine


def make_engine(
    name: EngineName,
    *,
    max_batch: int,
    dtype: Dtype = "float32",
    max_cache_tokens: int | None = None,
    vllm: VllmOptions | None = None,
) -> LiveEngine:
    """An engine without weights that decodes up to `max_batch` rollouts together.

    `max_cache_tokens` bounds the keys and values of the one named torch; `vllm` is for the one of that name.

    Raises ConfigError where the engine's library isn't installed.
    """
    if name == "vllm":
        from protocol.engines.vllm.engine import VllmEngine

        return VllmEngine(max_batch, dtype, vllm)
    import torch

    from protocol.engines.torch import MAX_CACHE_TOKENS, TorchEngine

    precision = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    return TorchEngine(max_batch, precision, max_cache_tokens or MAX_CACHE_TOKENS)
