"""The C library's heap, told to hand a step's large tensors back at once.

glibc raises its bound for what it maps by itself each time such a block is freed, up to 32 MiB; later tensors then
share one heap whose holes aren't given back. With the bound held where it starts, resident memory is what is live: half
as much for a step of the testnet's model (docs/benchmarks.md). Source: mallopt(3), M_MMAP_THRESHOLD.
"""

from __future__ import annotations

import ctypes
import sys

M_MMAP_THRESHOLD = -3
LARGE_BYTES = 128 * 1024
"""Where glibc starts; setting it ends its raising it."""


def return_large_blocks() -> bool:
    """Whether this machine's C library could be told; elsewhere nothing changes. To be called at the start."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(M_MMAP_THRESHOLD, LARGE_BYTES) == 1
