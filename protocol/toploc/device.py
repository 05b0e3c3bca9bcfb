"""The k largest magnitudes on the device that the states are on, so that only they cross over to the CPU.

In: bf16 states [T, H] on any device, a GPU above all. Out: what paths.py:choose gives for ties="lowest", by
torch operations alone: one integer a value ranks it by magnitude and then by the lower index, so that no two
are equal and the device's own rule for ties has no say. Tested on a CPU, where the results are the same; not
run on a GPU yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from protocol.toploc.activations import Activations, require_bfloat16
from protocol.toploc.paths import Chosen
from protocol.toploc.topk import BF16_INFINITY, Bits

if TYPE_CHECKING:
    import torch

_INDEX_BITS = 40


def is_remote(hidden: Activations) -> TypeGuard[torch.Tensor]:
    """Whether these are states that the CPU can't reach: a tensor on a GPU."""
    return not isinstance(hidden, np.ndarray) and hidden.device.type != "cpu"


def choose_on_device(hidden: torch.Tensor, chunk_rows: int, topk: int) -> Chosen:
    """The choice in each chunk of a rollout [T, H] bf16, T >= 1, H >= k. k x 8 bytes a chunk are copied."""
    import torch

    require_bfloat16(hidden)
    num_full = len(hidden) // chunk_rows
    parts = [hidden[: num_full * chunk_rows].reshape(num_full, -1)] if num_full else []
    if len(hidden) % chunk_rows:
        parts.append(hidden[num_full * chunk_rows :].reshape(1, -1))
    packed = torch.cat([_packed_topk(part, topk) for part in parts]).cpu().numpy()
    values: Bits = (packed & 0xFFFF).astype(np.uint16)
    return Chosen(packed >> 16, values)


def _packed_topk(chunks: torch.Tensor, topk: int) -> torch.Tensor:
    """Of each row [C, N]: index << 16 | pattern of the k largest magnitudes, int64 [C, k]."""
    import torch

    patterns = chunks.detach().contiguous().view(torch.int16)
    last = patterns.shape[1] - 1
    magnitudes = (patterns & 0x7FFF).clamp(max=BF16_INFINITY + 1).long()
    from_end = last - torch.arange(last + 1, device=chunks.device)
    ranked = torch.topk((magnitudes << _INDEX_BITS) | from_end, topk, dim=1, sorted=False).values
    indices = last - (ranked & ((1 << _INDEX_BITS) - 1))
    return (indices << 16) | (torch.gather(patterns, 1, indices).long() & 0xFFFF)
