"""Times the published library on activations from a file: run by the interpreter that has toploc 0.1.6 installed.

    python tests/bench/toploc_reference.py activations.npy PREFILL_ROWS

In: uint16 bf16 patterns [T, H]. Out: on standard output the least CPU time of each call in ms, and the proofs in hex.
It imports nothing of this project, so that torch and toploc are all that the interpreter needs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from toploc import build_proofs_bytes, verify_proofs_bytes

REPEATS = 25


def least_cpu_ms(call: Callable[[], object]) -> float:
    """Of several calls, after one to warm up. All threads count."""
    call()
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return 1000 * min(times)


def main() -> None:
    torch.set_num_threads(1)
    rows = torch.from_numpy(np.load(sys.argv[1])).view(torch.bfloat16)
    num_prefill = int(sys.argv[2])
    items, decode = [rows[:num_prefill], *rows[num_prefill:]], rows[num_prefill:].contiguous()
    listed, packed = build_proofs_bytes(items, 32, 128), build_proofs_bytes(decode, 32, 128, True)
    times = {
        "build list": least_cpu_ms(lambda: build_proofs_bytes(items, 32, 128)),
        "build tensor": least_cpu_ms(lambda: build_proofs_bytes(decode, 32, 128, True)),
        "prefill proof": least_cpu_ms(lambda: build_proofs_bytes(items[:1], 32, 128)),
        "verify list": least_cpu_ms(lambda: verify_proofs_bytes(items, listed, 32, 128)),
        "verify tensor": least_cpu_ms(lambda: verify_proofs_bytes(decode, packed, 32, 128, True)),
    }
    print(json.dumps({"times": times, "proofs": [proof.hex() for proof in listed + packed]}))


if __name__ == "__main__":
    main()
