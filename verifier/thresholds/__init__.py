"""The limits that a pool's rules start from, as `proofpool verifier calibrate` measured them (docs/thresholds.md).

In: the threshold files of this folder, one a model and precision. Out: `Thresholds`.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from protocol.errors import ConfigError, UsageError
from protocol.rules import Thresholds

DEFAULT = "testnet.float32"
SUFFIX = ".json"


def default_thresholds() -> Thresholds:
    """Limits for float32 engines on CPUs, calibrated on the testnet's base model."""
    return thresholds_of(DEFAULT)


def names() -> list[str]:
    """Of the files that come with proofpool: model and precision."""
    folder = files(__name__)
    return sorted(entry.name.removesuffix(SUFFIX) for entry in folder.iterdir() if entry.name.endswith(SUFFIX))


def thresholds_of(name: str) -> Thresholds:
    """The limits of one of `names`; raises UsageError where there is no such file."""
    if name not in names():
        raise UsageError("there are no such thresholds", name, f"there are: {', '.join(names())}")
    return _limits((files(__name__) / f"{name}{SUFFIX}").read_text(encoding="utf-8"), name)


def read_thresholds(path: Path) -> Thresholds:
    """The limits in a threshold file anywhere; raises ConfigError where it is none."""
    try:
        return _limits(path.read_text(encoding="utf-8"), f"{path}")
    except OSError as error:
        raise ConfigError("a threshold file can't be read", f"{path}: {error.strerror}") from error


def _limits(text: str, name: str) -> Thresholds:
    try:
        return Thresholds.model_validate(json.loads(text)["limits"])
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        why = f"{name}: {str(error).splitlines()[0]}"
        raise ConfigError("not a threshold file", why, "make one with `proofpool verifier calibrate`") from error
