"""The peak that MFU is a share of: what a run's devices could do in a second if they did nothing but products.

In: a device, a type; what learning reaches. Out: `Peak`, in floating-point operations a second. A CPU is timed in its
own seconds, since a testnet's trainer starts while all others do: by the wall's, a product would take as long as the
others let it, and a step that is left alone later would do more than such a peak. Neighbours still slow a core down, by
its caches and its second thread: the peak rises to what learning reaches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from protocol.products import product

LEAST_SECONDS = 0.02
"""A product that is quicker than this is too short to be timed."""
LARGEST_PRODUCT = 16_384
NUM_PRODUCTS = 5


@dataclass
class Peak:
    """Operations a second of all devices. Example: `Peak(measured_peak(device, dtype)).share(flops_per_second)`."""

    flops: float
    is_given: bool = False
    """The configuration's: no step changes it, and where it is wrong a share may be above 1."""

    def share(self, flops_per_second: float) -> float:
        """The part of the peak that this is; what was measured rises to it, so that it is 1 at most."""
        if not self.is_given:
            self.flops = max(self.flops, flops_per_second)
        return flops_per_second / self.flops


def measured_peak(device: torch.device, dtype: torch.dtype, seconds: Callable[[], float] | None = None) -> float:
    """Operations a second of the quickest of some square products, on as many threads as torch has.

    `seconds` is the device's clock: on a CPU the process's, a thread's share of it.
    """
    clock = seconds or (time.perf_counter if device.type == "cuda" else _thread_seconds)
    size = 256
    while True:
        matrix = torch.ones(size, size, device=device, dtype=dtype)
        took = min(_product_seconds(matrix, clock) for _ in range(NUM_PRODUCTS))
        if took >= LEAST_SECONDS or size >= LARGEST_PRODUCT:
            return 2.0 * size**3 / max(took, 1e-9)
        size *= 2


def _thread_seconds() -> float:
    """CPU seconds that each of torch's threads has worked, where they share the work evenly."""
    return time.process_time() / torch.get_num_threads()


def _product_seconds(matrix: torch.Tensor, clock: Callable[[], float]) -> float:
    _wait_for(matrix.device)
    started = clock()
    product(matrix, matrix)
    _wait_for(matrix.device)
    return clock() - started


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
