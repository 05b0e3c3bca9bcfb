"""Hidden states as bit patterns.

In: tensors or arrays of last hidden states after the final norm (the input of lm_head). Out: uint16
bit patterns of the same shape. torch is needed only by who passes a tensor; a numpy array of uint16
is taken as bf16 patterns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from protocol.errors import ProofpoolError
from protocol.toploc.topk import BF16_INFINITY, F16_INFINITY, Bits

if TYPE_CHECKING:
    import torch

Activations: TypeAlias = Union["torch.Tensor", npt.NDArray[Any]]

_INFINITIES = {
    "uint16": BF16_INFINITY,
    "float16": F16_INFINITY,
    "torch.bfloat16": BF16_INFINITY,
    "torch.float16": F16_INFINITY,
}


def to_bfloat16(hidden: Activations) -> Bits:
    """float32 or bfloat16 hidden states as bf16 patterns, rounded to nearest, ties to even.

    Prover and verifier both pass their states through here, so that one rounding rule holds.
    """
    kind = str(hidden.dtype)
    if isinstance(hidden, np.ndarray):
        return _round_float32(hidden) if kind == "float32" else bf16_patterns(hidden)
    return bf16_patterns(hidden.bfloat16() if kind == "torch.float32" else hidden)


def bf16_patterns(hidden: Activations) -> Bits:
    """uint16 patterns of bf16 states, same shape. Raises ProofpoolError for any other type."""
    require_bfloat16(hidden)
    return bit_patterns(hidden)[0]


def require_bfloat16(hidden: Activations) -> None:
    """Raises ProofpoolError for states of any other type."""
    if infinity_of(hidden.dtype) != BF16_INFINITY:
        raise _wrong_type(hidden.dtype)


def bit_patterns(hidden: Activations) -> tuple[Bits, int]:
    """uint16 patterns of bf16 or fp16 states, same shape, and the pattern of infinity in their format.

    Raises ProofpoolError for any other type: float32 has mantissas that no proof can hold.
    """
    infinity = infinity_of(hidden.dtype)
    if isinstance(hidden, np.ndarray):
        return np.require(hidden, requirements=["C", "ALIGNED"]).view(np.uint16), infinity
    import torch

    bits: Bits = hidden.detach().view(torch.uint16).numpy(force=True)
    return np.ascontiguousarray(bits), infinity


def infinity_of(dtype: object) -> int:
    """The pattern of infinity in a format. Raises ProofpoolError for one that isn't bf16 or fp16."""
    infinity = _INFINITIES.get(str(dtype))
    if infinity is None:
        raise _wrong_type(dtype)
    return infinity


def require_finite(chosen: Bits) -> None:
    """Refuse chosen values [C, k] with a NaN or an infinity among them: the model has diverged.

    Both rank before every finite value, so that looking at the chosen ones is looking at all.
    """
    broken = (chosen & 0x7FFF) >= BF16_INFINITY
    if broken.any():
        chunk = int(np.flatnonzero(broken.any(axis=1))[0])
        raise ProofpoolError("hidden states aren't finite", f"chunk {chunk}", "check the weights and the forward pass")


def _wrong_type(dtype: object) -> ProofpoolError:
    todo = "convert them with protocol.toploc.activations.to_bfloat16"
    return ProofpoolError("activations have the wrong type", f"{dtype}, not bfloat16", todo)


def _round_float32(hidden: npt.NDArray[np.float32]) -> Bits:
    words = np.ascontiguousarray(hidden).view(np.uint32)
    bits = ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype(np.uint16)
    # A NaN's payload could carry over into infinity or the sign.
    bits[np.isnan(hidden)] = 0x7FC0
    return bits
