"""CPU time of calls, and how it compares, for figures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

REPEATS = 25


def least_cpu_ms(call: Callable[[], object]) -> float:
    """Of several calls, after one to warm up. All threads of the process count."""
    call()
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return 1000 * min(times)


def ratio_of_medians(slow: Sequence[float], quick: Sequence[float]) -> float:
    """How many times as long `slow` takes, of seconds that were measured by turns."""
    return statistics.median(slow) / statistics.median(quick)
