"""CPU time of calls, for figures."""

from __future__ import annotations

import time
from collections.abc import Callable

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
