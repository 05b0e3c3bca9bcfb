"""The C library's heap, told to give memory back.

glibc raises its bound for what it maps by itself each time such a block is freed, up to 32 MiB; later tensors then
share one heap whose holes aren't given back. With the bound held where it starts, resident memory is what is live:
three fifths as much for a step of the testnet's model, nine tenths for SmolLM2's (docs/benchmarks.md), but the kernel
clears every tensor's pages anew, which costs a trainer as much time again, or half. Where much comes and goes, it is
enough to give the holes back after that.
Source: mallopt(3), M_MMAP_THRESHOLD; malloc_trim(3).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

M_MMAP_THRESHOLD = -3
LARGE_BYTES = 128 * 1024
"""Where glibc starts; setting it ends its raising it."""


def return_large_blocks() -> bool:
    """Whether this machine's C library could be told; elsewhere nothing changes. To be called at the start."""
    mallopt = _of_glibc("mallopt")
    return mallopt is not None and mallopt(M_MMAP_THRESHOLD, LARGE_BYTES) == 1


def return_holes() -> bool:
    """Give free pages back now, some 0.1 s a GB; whether this machine's C library could be asked."""
    malloc_trim = _of_glibc("malloc_trim")
    return malloc_trim is not None and malloc_trim(0) in (0, 1)


def _of_glibc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
