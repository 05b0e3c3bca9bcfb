"""One way of computing: which implementation, in which precision, on which attention kernel and how many threads.

In: names. Out: `Generator` and `Judge`, values that name themselves in reports, and `computing`, inside which torch
computes that way. Honest work is whatever any `Generator` of the pool's precision makes and any `Judge` looks at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, get_args

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from protocol.errors import UsageError

Dtype = Literal["float32", "bfloat16"]
Implementation = Literal["torch", "transformers"]
Kernel = Literal["auto", "math", "flash", "efficient", "eager"]
"""What `scaled_dot_product_attention` is computed by; `eager` is transformers' own matrix products."""

DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


@dataclass(frozen=True)
class Setup:
    """What generating and judging have in common. Example: `Setup("torch", "float32", "math", num_threads=2)`."""

    implementation: Implementation
    dtype: Dtype
    kernel: Kernel = "auto"
    num_threads: int = 1
    is_wide: bool = False
    """Products of bfloat16 matrices are computed in float32 and then rounded, as units for bfloat16 do it; torch's own
    loop, for processors without such units, is five times slower."""

    @property
    def name(self) -> str:
        parts: list[str] = [self.implementation, self.dtype]
        if self.kernel != "auto":
            parts.append(self.kernel)
        if self.is_wide:
            parts.append("wide")
        if self.num_threads > 1:
            parts.append(f"{self.num_threads} threads")
        return " ".join(parts)


@dataclass(frozen=True)
class Generator(Setup):
    """Decodes up to `max_batch` rollouts together."""

    max_batch: int = 64

    @property
    def name(self) -> str:
        return f"{super().name} batch {self.max_batch}"


@dataclass(frozen=True)
class Judge(Setup):
    """Judges by packed forward passes of up to `slice_tokens` tokens."""

    slice_tokens: int = 8192

    @property
    def name(self) -> str:
        return f"{super().name} slices of {self.slice_tokens}"


@contextmanager
def computing(setup: Setup) -> Iterator[None]:
    """Torch computes with this setup's kernel and threads inside; what was set before comes back."""
    before = torch.get_num_threads()
    torch.set_num_threads(setup.num_threads)
    try:
        with (
            sdpa_kernel(_BACKENDS[setup.kernel]) if setup.kernel in _BACKENDS else nullcontext(),
            _WideProducts() if setup.is_wide else nullcontext(),
        ):
            yield
    finally:
        torch.set_num_threads(before)


class _WideProducts(TorchFunctionMode):
    """Linear layers of bfloat16 compute in float32 inside."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is functional.linear and args[0].dtype == torch.bfloat16:
            return functional.linear(*(None if one is None else one.float() for one in args)).bfloat16()
        return func(*args, **(kwargs or {}))


def dtype_of(name: str) -> Dtype:
    """Raises UsageError for a precision that isn't calibrated."""
    for known in get_args(Dtype):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise UsageError("no such precision", f"{name!r}", f"choose from {', '.join(get_args(Dtype))}")


def has_transformers() -> bool:
    return find_spec("transformers") is not None


def has_kernel(kernel: Kernel, dtype: Dtype) -> bool:
    """Whether this machine's torch computes causal attention in `dtype` with that kernel."""
    if kernel not in _BACKENDS:
        return True
    queries = torch.zeros(1, 2, 4, 32, dtype=DTYPES[dtype])
    with sdpa_kernel(_BACKENDS[kernel]):
        try:
            functional.scaled_dot_product_attention(queries, queries, queries, is_causal=True)
        except RuntimeError:  # torch's only way to say that there is no such kernel
            return False
    return True
