"""The C library's heap, told to hand a step's large tensors back at once.

glibc raises its bound for what it maps by itself each time such a block is freed, up to 32 MiB; later tensors then share
one heap whose holes aren't given back. A step of the testnet's model (4,096 tokens) rose by 350 MiB of which 150 were
live; with the bound held where it starts, by 174. Source: mallopt(3), M_MMAP_THRESHOLD.
"""

from __future__ import annotations

import ctypes
import sys

M_MMAP_THRESHOLD = -3
LARGE_BYTES = 128 * 1024
"""Where glibc starts; setting it ends its raising it."""


def return_large_blocks() -> bool:
    """Whether this machine's C library could be told; elsewhere nothing changes. For the whole process, at its start."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(M_MMAP_THRESHOLD, LARGE_BYTES) == 1
