"""The limits that a pool's rules start from, as they were measured.

In: `verifier/thresholds.json`, the limits with the figures behind them. Out: `Thresholds`. How they were measured
and what they separate: docs/thresholds.md; measured again by `tests/bench/measure_thresholds.py`.
"""

from __future__ import annotations

import json
from importlib.resources import files

from protocol.rules import Thresholds

FILE_NAME = "thresholds.json"


def default_thresholds() -> Thresholds:
    """Limits for float32 engines on CPUs, calibrated on the testnet's base model."""
    document = json.loads((files("verifier") / FILE_NAME).read_text(encoding="utf-8"))
    return Thresholds.model_validate(document["limits"])
