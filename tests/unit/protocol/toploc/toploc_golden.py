"""The golden vectors of the published library (tests/data/toploc_golden.json) as tensors and cases."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

PATH = Path(__file__).parents[3] / "data" / "toploc_golden.json"
DOCUMENT: dict[str, Any] = json.loads(PATH.read_text())
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in DOCUMENT["cases"]}
BUILT = [name for name, case in CASES.items() if not case["all_null"]]
BUILT_BF16 = [name for name in BUILT if "boundary_tie" in CASES[name]]
REFUSED = [name for name, case in CASES.items() if case["all_null"]]
VERIFIED = [(name, number) for name, case in CASES.items() for number in range(len(case["verify"]))]
HOSTILE = {case["name"]: case for case in DOCUMENT["hostile"]}


@cache
def bits(name: str) -> npt.NDArray[Any]:
    """Raw patterns (uint16), or float32 values, of a tensor."""
    stored = DOCUMENT["tensors"][name]
    shape = tuple(stored["shape"])
    if "data_b64" in stored:
        kind = "<f4" if stored["dtype"] == "f32" else "<u2"
        return np.frombuffer(base64.b64decode(stored["data_b64"]), kind).reshape(shape).copy()
    change = stored.get("sparse") or stored["diff"]
    if "base" in change:
        flat = bits(change["base"]).ravel().copy()
    else:
        flat = np.full(int(np.prod(shape)), change["fill"], dtype=np.uint16)
    flat[change["index"]] = change["bits"]
    return flat.reshape(shape)


def tensor(name: str) -> torch.Tensor:
    kind = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[DOCUMENT["tensors"][name]["dtype"]]
    return torch.from_numpy(bits(name)).view(kind)


def items(name: str, prefill_rows: int) -> list[torch.Tensor]:
    """The list form: one item of `prefill_rows` rows, then one a row."""
    rows = tensor(name)
    return [rows[:prefill_rows]] * bool(prefill_rows) + list(rows[prefill_rows:])


def arguments(case: dict[str, Any]) -> tuple[int, int, bool]:
    return case["decode_batching_size"], case["topk"], case["skip_prefill"]
