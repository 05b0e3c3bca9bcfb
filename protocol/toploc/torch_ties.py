"""The set that torch's top-k keeps on a CPU, ties included, at a fraction of its cost.

In: keys [R, N] uint16 (magnitudes, see topk.py). Out: indices [R, k] int64. Loads torch.

For 64k <= N torch calls libstdc++'s partial_sort: a heap of the first k keys, where each later key
that is strictly larger than the smallest in the heap replaces it. A later key at or below the k-th
largest of the keys before it therefore changes nothing, and neither does leaving it out. What stays
is a list of little more than 64k keys in the old order, with zeros at its end where rows differ in
length; the same code run on it keeps the same elements. For N < 64k torch calls nth_element, which
looks at everything, so nothing is left out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from protocol.toploc.modulus import Indices
from protocol.toploc.topk import Bits, floor_of_topk, sparse

_PARTIAL_SORT = 64


def select_torch_cpu(keys: Bits, topk: int) -> Indices:
    num_rows, num_elements = keys.shape
    head = _PARTIAL_SORT * topk
    if num_elements <= 2 * head:
        return _torch_topk(keys, topk)
    rows, indices, places = sparse(_may_enter(keys, topk, head))
    num_kept = head + int(places.max(initial=-1)) + 1
    kept, origin = np.zeros((num_rows, num_kept), np.uint16), np.empty((num_rows, num_kept), np.int64)
    kept[:, :head], origin[:, :head] = keys[:, :head], np.arange(head)
    kept[rows, head + places] = keys[rows, head + indices]
    origin[rows, head + places] = head + indices
    chosen: Indices = np.take_along_axis(origin, _torch_topk(kept, topk), axis=1)
    return chosen


def _may_enter(keys: Bits, topk: int, head: int) -> npt.NDArray[np.bool_]:
    """For each key after the first `head`: is it above a floor of the keys before it?"""
    mask = np.empty((len(keys), keys.shape[1] - head), dtype=np.bool_)
    start = head
    while start < keys.shape[1]:
        floor = floor_of_topk(keys[:, :start], topk)
        later = slice(start - head, 2 * start - head)
        np.greater(keys[:, start : 2 * start], floor[:, None], out=mask[:, later])
        start *= 2
    return mask


def _torch_topk(keys: Bits, topk: int) -> Indices:
    # Keys are below 2^15, so int16 holds them; torch compares integers and floats by the same code.
    indices: Indices = torch.topk(torch.from_numpy(keys.view(np.int16)), topk, dim=1).indices.numpy()
    return indices
